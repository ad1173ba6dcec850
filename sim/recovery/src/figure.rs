//! Figure 10 of 1Pipe (SIGCOMM 2021): the mean time for which barriers stall.

use crate::Component;

/// Numbers of hosts for which the figure has values.
pub const FIGURE_HOSTS: [u32; 5] = [2, 4, 8, 16, 32];

const HOST: [f64; 5] = [51.103, 53.308, 66.527, 83.415, 124.270];
const RACK: [f64; 5] = [54.901, 62.267, 79.814, 170.801, 457.657];
const CORE_LINK: [f64; 5] = [36.177, 38.363, 43.886, 54.773, 69.775];
/// With up to 8 hosts the paper's processes were in one rack, without a core switch between them.
const CORE_SWITCH: [f64; 5] = [0.0, 0.0, 0.0, 111.000, 171.057];

/// Returns the paper's value in us. The figure has none for the crash of a single process.
pub fn paper_us(component: Component, hosts: u32) -> Option<f64> {
    let index = FIGURE_HOSTS.iter().position(|figure_hosts| *figure_hosts == hosts)?;
    let row = match component {
        Component::Process => return None,
        Component::Host => HOST,
        Component::Rack => RACK,
        Component::CoreLink => CORE_LINK,
        Component::CoreSwitch => CORE_SWITCH,
    };
    Some(row[index]).filter(|us| *us > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paper_values_are_indexed_by_component_and_hosts() {
        assert_eq!(paper_us(Component::Host, 32), Some(124.270));
        assert_eq!(paper_us(Component::CoreSwitch, 8), None);
        assert_eq!((paper_us(Component::Rack, 3), paper_us(Component::Process, 4)), (None, None));
    }
}
