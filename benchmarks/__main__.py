"""python -m benchmarks ...: the same as ``convergent bench ...``"""

import sys

from convergent.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["bench"]
    main()
