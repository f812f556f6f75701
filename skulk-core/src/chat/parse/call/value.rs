//! Where does a JSON value end?

use crate::chat::parse::delta::{CallProblem, Fault};

/// As deep as values can be read.
const DEPTH: u32 = 120;

/// Follows a value byte by byte, just closely enough to see its end.
#[derive(Debug, Clone, Default)]
pub(super) struct ValueEnd {
    depth: u32,
    in_string: bool,
    escaped: bool,
    begun: bool,
}

impl ValueEnd {
    /// Whether the next byte is within a string.
    pub(super) fn in_string(&self) -> bool {
        self.in_string
    }

    /// Whether nothing of it was taken.
    pub(super) fn is_fresh(&self) -> bool {
        !self.begun
    }

    /// Takes from `rest` what belongs to the value, and says whether it is at its end.
    ///
    /// # Errors
    /// At a byte that no JSON has there; it and what follows stay in `rest`.
    pub(super) fn take<'a>(&mut self, rest: &mut &'a str) -> (&'a str, Result<bool, Fault>) {
        let text = *rest;
        let mut split = |at: usize, outcome| {
            *rest = &text[at..];
            (&text[..at], outcome)
        };
        for (at, byte) in text.bytes().enumerate() {
            match self.step(byte) {
                Ok(Some(taken)) => return split(at + usize::from(taken), Ok(true)),
                Ok(None) => {}
                Err(fault) => return split(at, Err(fault)),
            }
        }
        split(text.len(), Ok(false))
    }

    /// Whether this byte ends the value, and then whether it belongs to it.
    fn step(&mut self, byte: u8) -> Result<Option<bool>, Fault> {
        let wrong = || {
            let found = char::from(byte).escape_default();
            Err(Fault::new(CallProblem::InvalidJson, format!("expected JSON, found `{found}`")))
        };
        if self.in_string {
            match byte {
                _ if byte < 0x20 => return wrong(),
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => {
                    self.in_string = false;
                    return Ok((self.depth == 0).then_some(true));
                }
                _ => {}
            }
            return Ok(None);
        }
        match byte {
            b'"' => {
                if self.begun && self.depth == 0 {
                    return wrong();
                }
                self.in_string = true;
            }
            b'{' | b'[' if self.depth == DEPTH => {
                return Err(Fault::new(
                    CallProblem::TooDeep,
                    format!("expected at most {DEPTH} levels, found more"),
                ));
            }
            b'{' | b'[' => {
                if self.begun && self.depth == 0 {
                    return wrong();
                }
                self.depth += 1;
            }
            b'}' | b']' | b',' | b' ' | b'\t' | b'\n' | b'\r' if self.begun && self.depth == 0 => {
                return Ok(Some(false));
            }
            b'}' | b']' if self.depth > 0 => {
                self.depth -= 1;
                return Ok((self.depth == 0).then_some(true));
            }
            b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if self.depth > 0 => {}
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'+' | b'-' | b'.' => {}
            _ => return wrong(),
        }
        self.begun = true;
        Ok(None)
    }
}
