//! How many layers does each node get? By shares of memory, at least one each.

use crate::error::{Error, ErrorKind, Result};

/// Layers up to which shares of them are exact.
const MOST: u64 = 1 << 53;

/// Shares `total` layers out by `fractions`, which add up to 1: each gets the whole part of its share, the
/// largest remainders get one more, and who has none yet gets one from who has most. The method of Skulk
/// 1.3, in the same order of floating-point operations, as that decides ties.
///
/// ```
/// use skulk::plan::split::allocate_layers;
/// assert_eq!(allocate_layers(10, &[0.25, 0.25, 0.5])?, [3, 2, 5]);
/// assert_eq!(allocate_layers(8, &[0.0, 0.0, 1.0])?, [1, 1, 6]);
/// # Ok::<(), skulk::Error>(())
/// ```
///
/// # Errors
/// `PlanNoFit` for fewer layers than fractions; `InvalidArgument` for no fractions, or such as are
/// negative, no numbers, or far from adding up to 1, and for more layers than can be shared out exactly.
pub fn allocate_layers(total: usize, fractions: &[f64]) -> Result<Vec<usize>> {
    let n = fractions.len();
    if n == 0 {
        return Err(invalid("expected at least one share of the layers, found none".to_owned()));
    }
    if total < n {
        let what = format!("expected at least {n} layers, one for each node, found {total}");
        return Err(Error::new(ErrorKind::PlanNoFit, what).with_hint("use fewer nodes"));
    }
    if let Some(found) = fractions.iter().find(|f| !(0.0..=f64::MAX).contains(*f)) {
        return Err(invalid(format!("expected shares of 0 or more, found {found}")));
    }
    let raw: Vec<f64> = fractions.iter().map(|f| f * total as f64).collect();
    let mut layers: Vec<usize> = raw.iter().map(|share| *share as usize).collect();
    let given = layers.iter().fold(0, |sum: usize, n| sum.saturating_add(*n));
    let rest = total.checked_sub(given).filter(|rest| *rest <= n).ok_or_else(|| {
        if total as u64 > MOST {
            let message = format!("expected at most {MOST} layers for these shares, found {total}");
            return Error::argument("total", message).with_hint("give the number of a model's layers");
        }
        let sum: f64 = fractions.iter().sum();
        invalid(format!("expected shares that add up to 1, found {sum}"))
    })?;

    let mut by_remainder: Vec<usize> = (0..n).collect();
    let remainder = |i: usize| raw[i] - layers[i] as f64;
    by_remainder.sort_by(|&a, &b| remainder(b).total_cmp(&remainder(a)));
    for &i in &by_remainder[..rest] {
        layers[i] += 1;
    }
    for i in 0..n {
        if layers[i] == 0 {
            // The first of several that have most.
            let most = (0..n).rev().max_by_key(|&j| layers[j]).unwrap_or(i);
            layers[most] -= 1;
            layers[i] = 1;
        }
    }
    Ok(layers)
}

fn invalid(what: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, what).with("field", "fractions")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_shares_are_errors() {
        for fractions in [
            vec![],
            vec![f64::NAN],
            vec![-0.5, 1.5],
            vec![f64::INFINITY, 0.0],
            vec![0.9, 0.9],
            vec![0.1, 0.1],
        ] {
            let error = allocate_layers(100, &fractions).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{fractions:?}");
        }
        assert_eq!(allocate_layers(1, &[0.5, 0.5]).unwrap_err().kind(), ErrorKind::PlanNoFit);
        assert_eq!(allocate_layers(usize::MAX, &[1.0]).unwrap(), [usize::MAX]);
        if let Ok(total) = usize::try_from(1u64 << 63) {
            let error = allocate_layers(total, &[0.3, 0.7]).unwrap_err();
            assert!(error.context().contains(&("field", "total".to_owned())), "{error:?}");
            assert!(error.message().contains(&total.to_string()), "{error}");
        }
    }
}
