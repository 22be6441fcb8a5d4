"""What must hold in every run: checks that know the state and none of the code that made it."""
