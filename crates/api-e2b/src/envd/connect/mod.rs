//! The Connect protocol in JSON: single answers, streams of envelopes, codes, keepalives and deadlines.
