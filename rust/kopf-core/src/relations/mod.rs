//! Relations between secondary and primary objects: which primaries a change of a secondary object triggers (1.7).
//!
//! - [`owners`] are the primaries of an owned object; [`References`] those that name an object by their fields.
//! - [`RelationMemory`] remembers the relations of each secondary object, so that both ends count: the primaries to which it was
//!   related before, and those to which it is related now.
//! - [`Attribution`] recognises the triggers by own writes: those that are to be ignored, and those of a [`HotLoop`].

mod attribution;
mod hot_loop;
mod memory;
mod own_writes;
mod owners;
mod references;
mod written_fields;

pub use attribution::{Attribution, TriggerDecision, TriggerEvent};
pub use hot_loop::{HotLoop, TriggerOrigin};
pub use memory::{Affected, Related, RelationMemory};
pub use own_writes::{EventOrigin, OwnWrite, OwnWrites};
pub use owners::{OwnerKind, has_owner, is_owned, owners};
pub use references::{ObjectName, ReferencePath, References};
pub use written_fields::{WrittenFields, is_last_writer};
