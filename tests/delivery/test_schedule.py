"""Which change goes next when several requests are under way: order per row, nothing lost, `durable` without a gap."""

import math
from itertools import repeat

from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from penstock.change import Change, Op, to_batch
from penstock.delivery.schedule import Ready, Schedule
from penstock.rows import rows_of

REACH = 12

one_row = st.tuples(st.tuples(st.sampled_from("tu"), st.sampled_from("abc")))
two_rows = st.sampled_from("tu").flatmap(lambda table: st.tuples(*repeat(st.tuples(st.just(table), st.sampled_from("abc")), 2)))
whole_table = st.tuples(st.tuples(st.sampled_from("tu"), st.none()))
changes = st.lists(st.one_of(one_row, one_row, one_row, two_rows, whole_table, st.none()), max_size=20)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), changes),
        st.tuples(st.just("take"), st.integers(1, 5)),
        st.tuples(st.just("take_bytes"), st.integers(0, 19)),
        st.tuples(st.just("settle"), st.integers(0, 99)),
        st.tuples(st.just("settle_part"), st.integers(0, 99)),
        st.tuples(st.just("set_aside"), st.none()),
    ),
    max_size=60,
)


def changed(position, rows):
    """A change about these rows."""
    if rows is None:
        return Change(position, Op.INSERT, "t", "{}")
    (table, key), *others = rows
    if key is None:
        return Change(position, Op.SCHEMA, table, "")
    before = f'{{"k":"{others[0][1]}","n":1}}' if others else None
    return Change(position, Op.UPDATE if others else Op.INSERT, table, f'{{"k":"{key}"}}', before)


class Model:
    """Every change with its fate, and what must hold whenever a batch is taken. No rows: left out by its format."""

    def __init__(self, reach):
        self.reach, self.schedule = reach, Schedule(reach or REACH, is_parallel=reach is not None)
        self.rows, self.settled, self.under_way, self.gone = [], set(), [], []
        self.was_aside = False
        self.aside = []  # numbers of what was set aside, a batch each

    def put(self, rows):
        start = len(self.rows)
        self.rows += rows
        self.settled |= {start + i for i, one in enumerate(rows) if one is None}
        if rows:
            batch = to_batch(changed(start + i, one) for i, one in enumerate(rows))
            texts = [None if one is None else "text" for one in rows]
            named = repeat(()) if self.reach is None else [one or () for one in rows]
            self.schedule.put(Ready(batch, list(map(str, range(start, len(self.rows)))), texts, named), 0.0)
        self.judge_prefix()

    def take_bytes(self, most_bytes):
        """Each has 4 bytes, and one goes in any case."""
        self.take(max(1, most_bytes // 4), most_bytes)

    def take(self, most, most_bytes=math.inf):
        if self.reach is None and len(self.under_way) > len(self.aside):
            return
        goes_in_order = self.reach is None and not self.aside
        near = [n for n in self.outstanding() if goes_in_order or n < self.schedule.durable + REACH]
        batch = self.schedule.take(9 if most_bytes < math.inf else most, most_bytes)
        numbers = [change.number for change in batch]
        assert len(numbers) <= most
        assert set(numbers) <= set(near)
        for number in numbers:
            assert all(n in self.settled or n in numbers[: numbers.index(number)] for n in self.earlier(number)), self.rows
        self.gone += numbers
        if len(numbers) < most and not any(self.is_whole(n) for n in numbers):
            for number in set(near) - set(numbers):
                assert not set(self.earlier(number)) <= self.settled | set(numbers) or self.is_whole(number), (
                    "left behind for nothing"
                )
        if batch:
            self.under_way.append(batch)

    def set_aside(self, _):
        """The batch under way, of one line, is refused."""
        if self.reach is None and len(self.under_way) > len(self.aside):
            batch = self.under_way[-1]
            rows = self.schedule.rows(batch)
            self.under_way[-1] = [one._replace(rows=found) for one, found in zip(batch, rows, strict=True)]
            self.schedule.set_aside(self.under_way[-1])
            self.aside.append({one.number for one in batch})
            self.was_aside = True

    def settle(self, which):
        if self.under_way:
            self.done(self.under_way.pop(which % len(self.under_way)))

    def settle_part(self, which):
        """Of a batch that was refused, parts are taken, in the order of their rows but in no other."""
        if self.under_way:
            batch = self.under_way.pop(which % len(self.under_way))
            first = batch[which % len(batch)]
            earlier = set(self.earlier(first.number))
            part = [one for one in batch if one.number in earlier or one is first]
            if rest := [one for one in batch if one not in part]:
                self.under_way.insert(0 if any(rest[0].number in one for one in self.aside) else len(self.under_way), rest)
            self.done(part)

    def done(self, changes):
        self.schedule.settle(changes)
        self.settled |= {change.number for change in changes}
        for batch in [one for one in self.aside if one <= self.settled]:
            self.aside.remove(batch)
            self.schedule.aside -= 1
        self.judge_prefix()

    def judge_prefix(self):
        prefix = next((n for n in range(len(self.rows)) if n not in self.settled), len(self.rows))
        assert self.schedule.durable == prefix
        last = self.schedule.last()
        assert (last and last.position) == (prefix - 1 if prefix else None)

    def is_whole(self, number):
        return self.rows[number][0][1] is None

    def outstanding(self):
        return [n for n in range(len(self.rows)) if n not in self.settled and n not in self.gone]

    def earlier(self, number):
        """What must be durable before this one, or go before it in its batch."""
        mine = self.rows[number]
        sent = [n for n in range(number) if self.rows[n] is not None]
        if self.is_whole(number) or (self.reach is None and not self.was_aside):
            return sent
        return [n for n in sent if set(self.rows[n]) & {*mine, (mine[0][0], None)}]


def follow(model, history):
    for step, what in history:
        getattr(model, step)(what)
    for _ in range(3 * len(model.rows)):
        model.take(3)
        model.settle(1)
    assert model.schedule.durable == model.schedule.taken == len(model.rows)
    assert sorted(model.gone) == [n for n, rows in enumerate(model.rows) if rows is not None], "each goes once"


@given(steps)
def test_each_row_in_order_each_change_once_and_durable_without_a_gap(history):
    follow(Model(REACH), history)


@given(steps)
def test_one_request_at_a_time_sends_all_in_the_order_taken(history):
    model = Model(None)
    follow(model, [step for step in history if step[0] != "set_aside"])
    assert model.gone == sorted(model.gone)


@settings(max_examples=examples(400))
@given(steps)
def test_what_was_set_aside_holds_up_its_rows_and_nobody_else(history):
    follow(Model(None), history)


def test_when_nothing_is_aside_any_more_all_go_in_order_again():
    model = Model(None)
    model.put([(("t", key),) for key in "abcabcde"])
    model.take(2)
    model.set_aside(None)
    model.take(2)
    assert model.gone == [0, 1, 2, 5]
    for _ in range(2):
        model.settle(0)
    model.take(9)
    assert model.gone[4:] == [3, 4, 6, 7]


def test_a_stuck_row_holds_nobody_else_until_the_reach_is_used_up():
    model = Model(REACH)
    model.put([(("t", key),) for key in "aabacdefghijklmnopq"])
    assert [change.number for change in model.schedule.take(1)] == [0]
    taken = []
    while batch := model.schedule.take(3):
        taken += [change.number for change in batch]
        model.schedule.settle(batch)
    assert taken == [2, 4, 5, 6, 7, 8, 9, 10, 11]
    assert model.schedule.durable == 0


def test_a_row_that_is_twice_in_a_batch_is_free_when_both_are_settled():
    model = Model(REACH)
    model.put([(("t", key),) for key in "abaaa"])
    first, other, again = model.schedule.take(3)
    for part in ([first], [other]):
        model.schedule.settle(part)
        assert model.schedule.take(3) == []
    model.schedule.settle([again])
    assert [change.number for change in model.schedule.take(3)] == [3, 4]


def test_what_is_blocked_is_not_looked_at_again_for_what_comes():
    model = Model(REACH)
    model.put([(("t", "a"),)] * 3)
    [first] = model.schedule.take(1)
    assert model.schedule.take(5) == []
    assert model.schedule.waiting == 0
    model.put([(("t", "b"),)])
    assert model.schedule.waiting == 1
    assert model.schedule.settle([first])
    assert model.schedule.waiting == 3


def test_what_was_passed_just_before_nothing_is_aside_any_more_goes_when_its_turn_comes():
    model = Model(None)
    model.put([(("u", "x"),), (("t", "a"),), (("t", None),), (("t", "b"),)])
    model.take(1)
    model.set_aside(None)
    [doubted] = model.schedule.take(1)
    model.schedule.settle(model.under_way[0])
    assert model.schedule.take(3) == []
    model.schedule.aside -= 1
    model.schedule.settle([doubted])
    assert [change.number for change in model.schedule.take(3)] == [2, 3]


keyed = st.lists(st.tuples(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), st.booleans()), min_size=1, max_size=4)


@given(keyed, st.data())
def test_keys_and_rows_are_told_of_any_of_what_was_taken(offers, data):
    schedule, each = Schedule(REACH, is_parallel=False), []
    for letters, is_known in offers:
        keys = [f'{{"id":"{letter}"}}' for letter in letters]
        batch = to_batch(Change(len(each) + i, Op.INSERT, "t", key) for i, key in enumerate(keys))
        schedule.put(
            Ready(batch, [(len(each) + i, 0) for i in range(len(keys))], keys, repeat(()), keys if is_known else None), 0.0
        )
        each += [(key, is_known) for key in keys]
    batch = schedule.take(len(each))
    some = data.draw(st.lists(st.sampled_from(batch), min_size=1, unique=True).map(sorted))
    assert schedule.rows(some) == [(("t", one.text),) for one in some]
    between = each[some[0].number : some[-1].number + 1]
    assert schedule.keys(some) == ([one.text for one in some] if all(is_known for _, is_known in between) else None)


@given(keyed, st.lists(st.sampled_from(["a", "b", "c", None]), max_size=6), st.data())
def test_what_is_called_clear_has_no_letter_that_came_since_it_was(offers, told, data):
    schedule, moments = Schedule(REACH, is_parallel=False), []
    letters = [key and f'{{"id":"{key}"}}' for key in told]
    for names, is_known in offers:
        keys, moment = [f'{{"id":"{name}"}}' for name in names], data.draw(st.sampled_from([None, *range(len(told) + 1)]))
        batch = to_batch(Change(len(moments) + i, Op.INSERT, "t", key) for i, key in enumerate(keys))
        ready = Ready(
            batch, [(len(moments) + i, 0) for i in range(len(keys))], keys, repeat(()), keys if is_known else None, moment
        )
        schedule.put(ready, 0.0)
        moments += repeat(moment if is_known else None, len(keys))
    batch = schedule.take(len(moments))
    some = data.draw(st.lists(st.sampled_from(batch), min_size=1, unique=True).map(sorted))
    if schedule.are_clear(some, lambda since: letters[since:]):
        since = [(one.text, moments[one.number]) for one in some]
        assert all(moment is not None and not {text, None} & set(letters[moment:]) for text, moment in since)
    elif len(some) == len(batch):
        assert any(moments[one.number] is None or {one.text, None} & set(letters[moments[one.number] :]) for one in some)


def about(op, key, before=None, facts=None):
    return rows_of(to_batch([Change(1, op, "t", key, before, None, 0, facts)]))[0]


def test_a_change_is_about_the_row_of_its_key_however_the_key_is_written():
    for op in (Op.INSERT, Op.DELETE, Op.REFRESH):
        assert about(op, '{"a":1,"b":"x"}') == about(op, '{ "b": "x", "a": 1 }') == (("t", '{"a":1,"b":"x"}'),)
    assert about(Op.UPDATE, '{"b":2}', '{"a":1,"b":2,"c":"{\\"b\\":3}"}') == (("t", '{"b":2}'),)


def test_an_update_that_changes_the_key_is_about_two_rows():
    assert about(Op.UPDATE, '{"b":2}', '{"a":1,"b":3}') == (("t", '{"b":2}'), ("t", '{"b":3}'))
    assert about(Op.UPDATE, '{"rowid":2}', '{"a":1}', '{"old_key":{"rowid":3}}') == (("t", '{"rowid":2}'), ("t", '{"rowid":3}'))
    assert about(Op.UPDATE, '{"id":2}', None, '{"old_key":{"id":2}}') == (("t", '{"id":2}'),)


def test_a_change_of_schema_and_an_update_whose_old_key_nothing_tells_are_about_the_whole_table():
    assert about(Op.SCHEMA, "") == (("t", None),)
    assert about(Op.SCHEMA, "", '{"table":"old"}') == (("t", None), ("old", None))
    assert about(Op.UPDATE, '{"name":"x"}', '{"total":1}', '{"new_row_id":2}') == (("t", None),)
    assert about(Op.UPDATE, '{"name":"x"}') == (("t", None),)
