//! What is written, as far as placement goes: what a request says of itself, and what a volume makes of that.

/// What a client says about the content of a request; decides where a first write is placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Content {
    /// Nothing was said.
    #[default]
    Unsaid,
    /// File data.
    Data,
    /// File system metadata.
    Metadata,
}

/// What a volume's writes count as when they are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum VolumeClass {
    /// As each request says; data when it says nothing.
    #[default]
    Auto,
    /// Always metadata.
    Metadata,
    /// Always data.
    Data,
}

impl VolumeClass {
    /// All, in the order of the documentation.
    pub const ALL: [VolumeClass; 3] = [VolumeClass::Auto, VolumeClass::Metadata, VolumeClass::Data];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            VolumeClass::Auto => "auto",
            VolumeClass::Metadata => "metadata",
            VolumeClass::Data => "data",
        }
    }

    /// What a request of this content counts as in a volume of this class.
    pub fn resolve(self, content: Content) -> Content {
        match (self, content) {
            (VolumeClass::Metadata, _) | (VolumeClass::Auto, Content::Metadata) => Content::Metadata,
            _ => Content::Data,
        }
    }
}
