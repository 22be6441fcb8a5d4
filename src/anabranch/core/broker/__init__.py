"""What a broker decides about itself: its registration, and which logs it hosts."""
