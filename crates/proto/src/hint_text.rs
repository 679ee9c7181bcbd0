//! A codec hint in a message or record: its text, so that the numbers of codecs and types may change. `None`: nobody said anything,
//! which means `auto`.
//!
//! ```text
//! 0      1        1 + n
//! +------+--------+------------------+
//! | some | length | text, as ASCII   |      0 alone where there is none; the length is a varint of postcard
//! +------+--------+------------------+
//! ```
use forebay_codec::CodecHint;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<S: Serializer>(hint: &Option<CodecHint>, to: S) -> Result<S::Ok, S::Error> {
    hint.map(|hint| hint.to_string()).serialize(to)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<CodecHint>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    text.map(|text| text.parse().map_err(D::Error::custom))
        .transpose()
}
