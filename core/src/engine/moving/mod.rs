//! Content on its way from one place to another, and members that come and go.

mod join;

use super::{Engine, Waiter};
