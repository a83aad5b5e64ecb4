"""Set-up of the harness's environment and of the embedded CPU engine's."""
