//! Which token comes next of those that may? The one that would be chosen if no other had a logit.

#[cfg(test)]
mod tests;

use super::Sampler;
use crate::error::Result;
use crate::ids::TokenId;

/// Which tokens may come next.
pub(in crate::generate) trait Narrow {
    /// Whether this one may.
    fn allows(&mut self, token: TokenId) -> Result<bool>;
    /// Lowers the logits of all others to -∞.
    fn narrow(&mut self, logits: &mut [f32]) -> Result<()>;
}

/// Tokens that are tried one by one beside those that are needed, before it is found out which of all may come.
const SPARE: usize = 15;

impl Sampler {
    /// How many of the largest logits are mostly [`enough`](Self::enough) where some tokens may not come.
    pub(in crate::generate) fn mostly_enough(&self) -> Option<usize> {
        self.enough().map(|k| k + SPARE)
    }

    /// Chooses a token as [`sample`](Self::sample) does with -∞ for all that may not come.
    pub(in crate::generate) fn sample_narrowed(
        &mut self,
        logits: &mut [f32],
        history: &[TokenId],
        narrow: &mut dyn Narrow,
    ) -> Result<TokenId> {
        self.adjust(logits, history);
        let mut top = std::mem::take(&mut self.largest);
        let k = self.few().unwrap_or(1) + SPARE;
        top.reset(k);
        top.see(0, logits);
        let listed = || top.listed().map(|(id, logit)| (TokenId(id), logit));
        // Without top-k the list must reach down to where tokens have no share.
        let tells = self.few().is_some() || top.least() < self.sampling.floor(top.number(1));
        let chosen = if tells { self.sample_among(listed(), listed().count() < k, narrow) } else { Ok(None) };
        self.largest = top;
        match chosen? {
            Some(id) => Ok(id),
            None => {
                narrow.narrow(logits)?;
                self.choose(logits)
            }
        }
    }

    /// The same by some of the largest logits, falling, adjusted before. `None` where they are too few to tell, unless
    /// they are `all` that there are.
    pub(in crate::generate) fn sample_among(
        &mut self,
        largest: impl Iterator<Item = (TokenId, f32)>,
        all: bool,
        narrow: &mut dyn Narrow,
    ) -> Result<Option<TokenId>> {
        let few = self.few();
        let (mut ids, mut logits) = (std::mem::take(&mut self.ids), std::mem::take(&mut self.allowed));
        ids.clear();
        logits.clear();
        let (mut enough, mut floor) = (false, f32::NEG_INFINITY);
        for (id, logit) in largest {
            if logit == f32::NEG_INFINITY || logit < floor {
                enough = true;
            } else if narrow.allows(id)? {
                if ids.is_empty() {
                    floor = self.sampling.floor(logit);
                }
                ids.push(id);
                logits.push(logit);
                enough = few == Some(ids.len());
            }
            if enough {
                break;
            }
        }
        let chosen = (enough || all).then(|| self.sample_top(&ids, &logits)).transpose();
        (self.ids, self.allowed) = (ids, logits);
        chosen
    }
}
