#!/bin/sh
# HARNESS_PYTHON of a rehearsal (see rehearsal.py): starting no Python makes it quick. Settings were
# worked out beforehand; what the recipe says to speculate and to serve is handed on as it is.
case "${2-} ${3-}" in
  "utils.recipes.settings "*) cat "$REHEARSED_SETTINGS" ;;
  "utils.recipes.speculate "*)
    shift 2
    printf '%s\0' '<speculate>' "$@" '</speculate>'
    ;;
  "utils.recipes.dry_run serve")
    shift 3
    printf '%s\0' "$@"
    ;;
  *) ;;
esac
