//! The generation gate: an old proxy pod never reverts what a newer one has applied.
//!
//! During a rollout of the Deployment, two proxies of one server run side by side, and both apply the server's
//! StatefulSet. Each knows the generation of the spec that its pod was created for; the object carries the generation
//! of the last apply. Only a strictly greater generation on the object stops an apply: a stopped proxy still serves,
//! through the newer server.

pub use skep_api::annotation::GENERATION_ENV as GENERATION_VARIABLE;

/// The generation that a proxy acts for, and a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frozen {
    /// The generation.
    pub generation: i64,
    /// Why the variable was ignored, if it was.
    pub warning: Option<String>,
}

/// What a proxy may do with the StatefulSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Apply it.
    Apply,
    /// Skip it: a proxy of a newer generation owns it.
    Skip,
}

/// The generation of this pod: the variable where it holds one, else that of the RunConfig.
pub fn frozen(variable: Option<&str>, in_file: i64) -> Frozen {
    let refused = |why: &str, text: &str| Frozen {
        generation: in_file,
        warning: Some(format!("{GENERATION_VARIABLE} is `{text}`, which is {why}; using {in_file} from the RunConfig")),
    };
    match variable.filter(|text| !text.is_empty()) {
        None => Frozen { generation: in_file, warning: None },
        Some(text) => match text.parse::<i64>() {
            Err(_) => refused("not a number", text),
            Ok(negative) if negative < 0 => refused("negative", text),
            Ok(generation) => Frozen { generation, warning: None },
        },
    }
}

/// Whether a proxy of generation `mine` may apply a StatefulSet whose annotation is `live`. One that does not know its
/// generation, because its operator did not set it, applies: it cannot compare.
pub fn gate(live: Option<&str>, mine: i64) -> Gate {
    match live.and_then(|text| text.parse::<i64>().ok()) {
        Some(newer) if mine > 0 && newer > mine => Gate::Skip,
        _ => Gate::Apply,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_wins_over_the_file_and_zero_is_a_value() {
        for (variable, file, expected) in [(Some("7"), 3, 7), (Some("0"), 3, 0), (Some(""), 3, 3), (None, 3, 3)] {
            assert_eq!(frozen(variable, file), Frozen { generation: expected, warning: None }, "{variable:?}");
        }
    }

    #[test]
    fn an_invalid_variable_is_ignored_with_a_warning() {
        for variable in ["-1", "seven", "7.0", "99999999999999999999"] {
            let frozen = frozen(Some(variable), 3);
            assert_eq!(frozen.generation, 3);
            assert!(frozen.warning.unwrap().contains(variable));
        }
    }

    #[test]
    fn only_a_strictly_greater_generation_stops_an_apply() {
        for (live, mine, expected) in [
            (Some("8"), 7, Gate::Skip),
            (Some("7"), 7, Gate::Apply),
            (Some("6"), 7, Gate::Apply),
            (Some("seven"), 7, Gate::Apply),
            (Some(""), 7, Gate::Apply),
            (None, 7, Gate::Apply),
            (Some("1"), 0, Gate::Apply),
        ] {
            assert_eq!(gate(live, mine), expected, "{live:?} against {mine}");
        }
    }
}
