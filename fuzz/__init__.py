"""Coverage-guided fuzzing of what a node does with bytes: `make fuzz`.

An input is a stream of frames to one node in memory, or bytes for one of the smaller targets in
`fuzz/targets`. What reaches new code or new answers joins the corpus and is changed further.
"""
