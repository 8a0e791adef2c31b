//! Confluent's wire framing: magic byte 0 and a 4-byte schema id before the payload.
