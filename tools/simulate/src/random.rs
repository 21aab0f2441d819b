//! Random numbers that a seed makes again, on every machine.

/// Splitmix64, with the few distributions that lives need.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Numbers of one of many lives: neither the seed nor the life alone tells them.
    pub fn of(seed: u64, life: u64) -> Self {
        let mut random = Self(seed ^ life.wrapping_mul(0xd6e8_feb8_6659_fd93));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// A number from `low` up to, but not, `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low))
    }

    /// True once in `times`; never for 0.
    pub fn once_in(&mut self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }

    /// True for so many of a hundred.
    pub fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// The time until the next of things that happen by themselves, so often on average.
    pub fn until_next(&mut self, mean: u64) -> u64 {
        // 1 to 2^32, so that there is a logarithm.
        let part = (self.next() >> 32) + 1;
        #[expect(clippy::cast_precision_loss, reason = "both are far below 2^53")]
        let wait = mean as f64 * (32.0 * std::f64::consts::LN_2 - ln(part));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
        {
            wait as u64
        }
    }
}

/// The natural logarithm by additions and multiplications alone: libraries differ in its last digit, and a figure that is
/// checked in must not.
fn ln(number: u64) -> f64 {
    let twos = 63 - number.leading_zeros();
    #[expect(clippy::cast_precision_loss, reason = "at most 2^32")]
    let rest = number as f64 / (1u64 << twos) as f64;
    // rest is from 1 to 2: ln(rest) = 2 atanh((rest - 1) / (rest + 1)).
    let part = (rest - 1.0) / (rest + 1.0);
    let (square, mut power, mut sum) = (part * part, part, 0.0);
    for odd in (1..30u32).step_by(2) {
        sum += power / f64::from(odd);
        power *= square;
    }
    f64::from(twos) * std::f64::consts::LN_2 + 2.0 * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_one() {
        for number in [1, 2, 3, 10, 1000, 123_456_789, 1 << 32] {
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let expected = (number as f64).ln();
            assert!((ln(number) - expected).abs() < 1e-9, "{number}");
        }
    }

    #[test]
    fn waits_have_their_mean() {
        let mut random = Random::of(1, 1);
        let sum: u64 = (0..20_000).map(|_| random.until_next(1000)).sum();
        assert!((19_000_000..21_000_000).contains(&sum), "{sum}");
    }
}
