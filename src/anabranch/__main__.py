"""`python -m anabranch`: the command line, for an interpreter without the console script."""

from anabranch.cli.main import main

main()
