//! The engines from outside: what people write, and what attackers write.

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod generated;
#[cfg(test)]
mod hostile;
