"""The client library of Kafka, which the sink and the state store share."""
