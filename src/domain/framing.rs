//! Confluent's wire framing: magic byte 0 and a 4-byte schema id before the payload.

/// How a value is framed. Bytes that merely begin with 0 are unframed unless an id follows; whether the id exists is for the
/// registry to say, and until it does the value is not known to be framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Unframed,
    /// Has the shape of Confluent's framing; the payload starts at byte 5.
    Confluent {
        schema_id: u32,
    },
}

/// Bytes before the payload of a framed value.
pub const FRAME_LENGTH: usize = 5;

/// Reads the framing of a value (Confluent's "wire format": byte 0, then the schema id, 4 bytes big-endian).
pub fn framing(value: &[u8]) -> Framing {
    match value {
        [0, a, b, c, d, ..] => Framing::Confluent { schema_id: u32::from_be_bytes([*a, *b, *c, *d]) },
        _ => Framing::Unframed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_magic_byte_and_whole_id_are_framing() {
        assert_eq!(framing(b"\x00\x00\x00\x00\x2a\x02\x10"), Framing::Confluent { schema_id: 42 });
        assert_eq!(framing(b"\x00\x00\x00\x00\x2a"), Framing::Confluent { schema_id: 42 });
        for unframed in [&b""[..], b"\x00", b"\x00\x00", b"\x00\x00\x00\x00", b"{\"id\":1}", b"\x01\x00\x00\x00\x2a\x02"] {
            assert_eq!(framing(unframed), Framing::Unframed, "{unframed:?}");
        }
    }
}
