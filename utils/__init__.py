import sys

if sys.version_info < (3, 10):  # noqa: UP036 # said here, before an older one meets newer syntax
    remedy = "set HARNESS_PYTHON to a newer one; for make setup, SETUP_PYTHON"
    sys.stderr.write("error: " + sys.executable + " is older than 3.10: " + remedy + "\n")
    raise SystemExit(2)
