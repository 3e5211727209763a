//! Deterministic pseudorandom numbers for tests and simulations.

/// A xorshift generator. Its state must not be 0.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns generator `number` of a family of independent generators with one seed (splitmix64).
    pub fn nth(seed: u64, number: u64) -> Self {
        let mut z = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((z ^ (z >> 31)) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number in `0..bound`. Panics if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 16) as usize % bound
    }

    /// Returns a number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number with the standard normal distribution (Box-Muller transform).
    pub fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.unit(), self.unit());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    /// Returns `count` distinct indices from `0..of` in random order, or all of them if `of` is smaller than
    /// `count`.
    pub fn choose(&mut self, of: usize, count: usize) -> Vec<usize> {
        let mut places: Vec<usize> = (0..of).collect();
        for i in 0..count.min(of) {
            let other = i + self.below(of - i);
            places.swap(i, other);
        }
        places.truncate(count);
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_tried_with_the_same_cases_in_every_run() {
        let config = proptest::test_runner::Config::default();
        let is_fixed = matches!(config.rng_seed, proptest::test_runner::RngSeed::Fixed(_));
        assert!(
            is_fixed && config.failure_persistence.is_none(),
            ".cargo/config.toml says so to cargo: {config:?}"
        );
    }

    #[test]
    fn normal_numbers_are_normal() {
        let mut random = Random::nth(1, 2);
        let drawn: Vec<f64> = (0..20_000).map(|_| random.normal()).collect();
        let mean = drawn.iter().sum::<f64>() / 20_000.0;
        let variance = drawn.iter().map(|x| x * x).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        let mut places = random.choose(9, 9);
        places.sort_unstable();
        assert_eq!(places, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
