//! The peak of a closed loop over the number of transactions in flight.

use crate::benchmark::Figures;

/// Number of transactions in flight of each client with which the search begins.
const IN_FLIGHT_FIRST: u32 = 8;
/// A doubling that raises the rate by less than this factor ends the search.
const RISE_MIN: f64 = 1.05;

/// The number of transactions in flight that a search has found, with its results.
#[derive(Clone, Debug, PartialEq)]
pub struct Peak {
    /// Transactions in flight of each client.
    pub in_flight: u32,
    /// Results with that number.
    pub figures: Figures,
    /// The highest rate that the search has seen, in transactions per second and process.
    pub highest_per_s: f64,
}

/// Searches for the peak rate: tries 8, 16, 32 and so on, up to `most`, transactions in flight of
/// each client, until a doubling raises the rate by less than 5 %. Then finds by bisection the
/// smallest number in flight whose rate is at least `share_percent` of the highest one.
pub fn search<E>(
    most: u32,
    share_percent: u32,
    mut measure: impl FnMut(u32) -> Result<Figures, E>,
) -> Result<Peak, E> {
    let mut in_flight = IN_FLIGHT_FIRST.min(most);
    let mut best = (in_flight, measure(in_flight)?);
    while in_flight < most {
        in_flight = (2 * in_flight).min(most);
        let figures = measure(in_flight)?;
        let rise = figures.per_s_and_process / best.1.per_s_and_process;
        if rise > 1.0 {
            best = (in_flight, figures);
        }
        if rise < RISE_MIN {
            break;
        }
    }
    let highest_per_s = best.1.per_s_and_process;
    let (mut enough, mut too_few) = (best, 0);
    while share_percent < 100 && too_few + 1 < enough.0 {
        let middle = (too_few + enough.0) / 2;
        let figures = measure(middle)?;
        if figures.per_s_and_process * 100.0 >= highest_per_s * f64::from(share_percent) {
            enough = (middle, figures);
        } else {
            too_few = middle;
        }
    }
    let (in_flight, figures) = enough;
    Ok(Peak { in_flight, figures, highest_per_s })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Searches where the rate is proportional to the number in flight up to `peak`, then falls.
    fn found(peak: u32, most: u32, share_percent: u32) -> (u32, Vec<u32>) {
        let mut tried = Vec::new();
        let result = search(most, share_percent, |in_flight| {
            tried.push(in_flight);
            let per_s_and_process = f64::from(in_flight.min(peak)) - f64::from(in_flight) / 1e3;
            Ok::<_, Infallible>(Figures { per_s_and_process, ..Figures::default() })
        });
        let Ok(found) = result;
        (found.in_flight, tried)
    }

    #[test]
    fn doubles_until_the_rate_rises_no_more() {
        assert_eq!(found(40, 512, 100), (64, [8, 16, 32, 64, 128].to_vec()));
        assert_eq!(found(4, 512, 100), (8, [8, 16].to_vec()));
        assert_eq!(found(1_000, 24, 100), (24, [8, 16, 24].to_vec()), "never above the limit");
        assert_eq!(found(1_000, 4, 100).0, 4);
    }

    #[test]
    fn finds_the_smallest_number_with_a_share_of_the_peak() {
        // 0.95 of 39.936 needs 38 in flight.
        assert_eq!(found(40, 512, 95).0, 38);
        assert_eq!(found(4, 512, 50).0, 2);
        assert_eq!(found(1, 512, 95).0, 1);
    }
}
