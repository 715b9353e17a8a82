//! What the environment asks for. Read once per process NIC.

use crate::error::NicError;

/// The links that traffic may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    pub loopback: bool,
    pub shm: bool,
    pub udp: bool,
}

/// The settings of a process.
#[derive(Clone, Debug)]
pub struct Config {
    /// `ADVERB_NETDEV`: interfaces to offer; empty means the loopback interface only.
    pub netdevs: Vec<String>,
    /// `ADVERB_UDP_PORT`, 4791 unless set.
    pub udp_port: u16,
    /// `ADVERB_LINKS`, all unless set.
    pub links: Links,
    /// `ADVERB_EVENTS=strict`: the bare arm rule of the specification.
    pub strict_events: bool,
}

impl Config {
    /// Reads the environment, except in set-user-ID programs; a value that cannot be understood is an error that names it.
    pub fn from_env() -> Result<Self, NicError> {
        let var = |name: &str| {
            let value = adverb_mem::setting(name)?.into_string().ok();
            value.filter(|v| !v.is_empty())
        };
        let netdevs = var("ADVERB_NETDEV")
            .map(|v| {
                v.split(',')
                    .map(|s| s.trim().to_owned())
                    .filter(|s| !s.is_empty())
                    .collect()
            })
            .unwrap_or_default();
        let udp_port = match var("ADVERB_UDP_PORT") {
            None => adverb_wire::UDP_PORT,
            Some(v) => v
                .parse()
                .ok()
                .filter(|p| *p != 0)
                .ok_or(NicError::Setting {
                    name: "ADVERB_UDP_PORT",
                    value: v,
                    wants: "a port number from 1 to 65535",
                })?,
        };
        let links = match var("ADVERB_LINKS") {
            None => Links {
                loopback: true,
                shm: true,
                udp: true,
            },
            Some(v) => parse_links(&v)?,
        };
        let strict_events = match var("ADVERB_EVENTS").as_deref() {
            None | Some("kind") => false,
            Some("strict") => true,
            Some(v) => {
                return Err(NicError::Setting {
                    name: "ADVERB_EVENTS",
                    value: v.to_owned(),
                    wants: "\"strict\" or \"kind\"",
                });
            }
        };
        Ok(Self {
            netdevs,
            udp_port,
            links,
            strict_events,
        })
    }
}

fn parse_links(text: &str) -> Result<Links, NicError> {
    let mut links = Links {
        loopback: false,
        shm: false,
        udp: false,
    };
    for name in text.split(',').map(str::trim) {
        match name {
            "loopback" => links.loopback = true,
            "shm" => links.shm = true,
            "udp" => links.udp = true,
            _ => {
                return Err(NicError::Setting {
                    name: "ADVERB_LINKS",
                    value: text.to_owned(),
                    wants: "a list of loopback, shm, udp",
                });
            }
        }
    }
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_a_list_and_unknown_names_are_named() {
        assert_eq!(
            parse_links("shm, udp").unwrap(),
            Links {
                loopback: false,
                shm: true,
                udp: true
            }
        );
        let text = parse_links("shm,warp").unwrap_err().to_string();
        assert!(
            text.contains("warp") && text.contains("ADVERB_LINKS"),
            "{text}"
        );
    }
}
