//! How do tokens cross that become rows, and these rows?

use super::bytes::{Reader, Words, put_count, put_each};
use super::values::{Rows, WireType, rows_of};
use crate::error::Result;

const REQUEST: &str = "embed request";
const REPLY: &str = "embed reply";

/// Tokens: `[n][u32 × n]`.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct EmbedRequest<'a> {
    /// The tokens.
    pub tokens: Words<'a>,
}

impl<'a> EmbedRequest<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) where it is none.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(REQUEST, bytes);
        let count = reader.count("num_tokens")?;
        let tokens = reader.words("token_ids", count)?;
        reader.end()?;
        Ok(Self { tokens })
    }

    /// Appends a request.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for what the frame cannot hold.
    pub fn encode(out: &mut Vec<u8>, tokens: &[u32]) -> Result<()> {
        put_count(out, "tokens", tokens.len())?;
        put_each(out, tokens, u32::to_le_bytes);
        Ok(())
    }
}

/// A row for each token, scaled as the model scales them: `[seq_len][hidden][f32 …]`.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct EmbedReply<'a> {
    /// `[seq_len, hidden]`.
    pub rows: Rows<'a>,
}

impl<'a> EmbedReply<'a> {
    /// Reads a reply of a model of rows of `hidden` elements.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) where it is none.
    pub fn decode(bytes: &'a [u8], hidden: usize) -> Result<Self> {
        let mut reader = Reader::new(REPLY, bytes);
        let rows = reader.count("seq_len")?;
        reader.hidden(hidden)?;
        let rows = Rows::read(&mut reader, REPLY, "residual", WireType::F32, rows, hidden)?;
        reader.end()?;
        Ok(Self { rows })
    }

    /// Appends a reply of rows `[rows, hidden]`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for what the frame cannot hold.
    pub fn encode(out: &mut Vec<u8>, hidden: usize, values: &[f32]) -> Result<()> {
        put_count(out, "rows", rows_of(hidden, values)?)?;
        put_count(out, "hidden", hidden)?;
        WireType::F32.put(out, hidden, values);
        Ok(())
    }
}
