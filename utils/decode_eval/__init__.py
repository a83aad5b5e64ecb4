"""The real acceptance length while a draft head trains. docs/decode-eval.md says how to use it."""

from utils.decode_eval.config import DecodeEvalConfig, resolve_decode_eval_config
from utils.decode_eval.loop import Session, session
from utils.decode_eval.runner import DecodeEvalRunner

__all__ = [
    "DecodeEvalConfig",
    "DecodeEvalRunner",
    "Session",
    "resolve_decode_eval_config",
    "session",
]
