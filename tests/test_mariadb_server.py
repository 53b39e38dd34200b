"""Servers of tests run side by side and leave each other alone."""

from servers.mariadb import MariaServer


def test_a_server_that_starts_leaves_the_temporary_tables_of_another_alone(mariadb_server, tmp_path):
    with mariadb_server.connect("mysql") as connection, connection.cursor() as cursor:
        cursor.execute("create temporary table passing (id int) engine = aria")
        cursor.execute("insert into passing values (1)")
        with MariaServer(tmp_path):
            cursor.execute("flush tables")
            cursor.execute("select id from passing")
            assert cursor.fetchall() == ((1,),)
            cursor.execute("drop table passing")
