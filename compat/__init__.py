"""Apache Kafka and Anabranch side by side: the same tools, the same scenarios, one table.

Started by the same code (`bench.servers`), each in a folder of its own, with the same settings. A
row is a function that is handed one peer and returns what it observed; it runs against both, and
what it observed must be equal. `row.py` says what a row is, `families/` holds them.
"""
