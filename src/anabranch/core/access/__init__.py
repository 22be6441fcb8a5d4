"""Who may do what: principals and the question that handlers ask where Kafka asks it."""
