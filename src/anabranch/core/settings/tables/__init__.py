"""The tables of settings, one file a subject; `catalogue.py` joins them."""
