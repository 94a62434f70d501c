//! The laboratory: clients as people describe them, against the engine and modelled devices, measured.
//!
//! ```text
//!   setup   members, profiles, settings, volumes      job      what clients ask
//!        \                                             /
//!         `---------------> run <---------------------'
//!                            |  one virtual clock; places, client: where, when
//!                            v
//!                         outcome    latency, devices, reasons
//! ```
//!
//! Everything is an integer and a function of the seed.

mod client;
pub mod files;
pub mod fio;
pub mod flight;
pub mod groups;
pub mod job;
pub mod latency;
pub mod outcome;
mod places;
pub mod pool_file;
pub mod run;
pub mod script;
pub mod setup;
pub mod trace;
pub mod what_if;

pub use job::{Access, Cpu, Direction, Job, SizeRange, Sizes};
pub use outcome::{Outcome, Stop};
pub use run::run;
pub use setup::{Fill, Member, Setup, Volume};
