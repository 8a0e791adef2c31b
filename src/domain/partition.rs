//! Which partition a key maps to: murmur2 as Java producers do, CRC32 as librdkafka does by default.
