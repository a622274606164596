//! `[[acl]]`: access lists, with rules as text, as tables, or in a file of their own; and the lists that interfaces name.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::Path;

use linerate_engine::desired::AclSpec;
use linerate_router::acl::{AclAction, AclLine, AclRule, MAX_ACL_RULES, parse_line, parse_rules};

use super::decode::{At, Item, Section, Source};
use super::interfaces::{Interface, no_such};
use super::problem::Problem;
use super::{Open, acl_rules};

/// Largest file of rules read.
const MAX_FILE: u64 = 32 << 20;

/// Errors of one file that are reported.
const MAX_ERRORS: usize = 20;

/// Reads all lists.
pub(super) fn read(sections: Vec<Section<'_>>, source: &Source<'_>, open: Open<'_>) -> Vec<AclSpec> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut out = Vec::new();
    for section in sections {
        let (at, key) = (section.at, section.key.clone());
        let Some(spec) = one(section, source, open) else { continue };
        if let Some(first) = seen.insert(spec.name.clone(), at) {
            let message = format!("the name of the access list of line {} again", source.line(first));
            source.problem(at, key, format!("{message}: expected each name once"));
        }
        out.push(spec);
    }
    out
}

fn one(mut s: Section<'_>, source: &Source<'_>, open: Open<'_>) -> Option<AclSpec> {
    let (at, key) = (s.at, s.key.clone());
    let name = super::name(&mut s, 63);
    let given = s.take("default");
    let default = given.as_ref().and_then(|i| i.word(&AclAction::ALL)).map_or(AclAction::Deny, |a| a.value);
    let inline =
        s.take("rules").and_then(|i| i.list("a list of rules such as \"permit tcp any any eq 443\""));
    let file = s.take("rules_file").and_then(|i| i.string("the path of a file of rules"));
    s.finish();
    let mut rules = Vec::new();
    let mut remark = String::new();
    for item in inline.iter().flatten() {
        rule(item, &mut remark, &mut rules);
    }
    if let Some(file) = &file {
        // A file takes a while: it is read only where it can still be used.
        if !source.failed() {
            from_file(file, source, open, &mut rules);
        }
    }
    if inline.is_none() && file.is_none() && given.is_none() {
        source.problem(at, &key, "the list says nothing: expected `rules`, `rules_file` or a `default`");
    }
    if rules.len() > MAX_ACL_RULES {
        let message = format!("found {} rules: expected at most {MAX_ACL_RULES}", rules.len());
        source.problem(at, &key, message);
    }
    let name = name?.value;
    if default != AclAction::Permit && !rules.is_empty() {
        for (family, is_for) in [("IPv4", 0), ("IPv6", 1)] {
            let has = rules.iter().any(|r| if is_for == 0 { r.families().0 } else { r.families().1 });
            if !has {
                let message = format!(
                    "no rule of this list is for {family}: where it is bound, all {family} packets meet its end ({})",
                    default.name()
                );
                source.warning(at, &key, message);
            }
        }
    }
    Some(AclSpec { name, rules: rules.into(), default })
}

/// One entry of `rules`: a line of text, or a table.
fn rule(item: &Item<'_>, remark: &mut String, rules: &mut Vec<AclRule>) {
    let what = "a rule such as \"permit tcp any any eq 443\", or a table with an `action`";
    if !item.is_string() {
        let found = item.section(what).and_then(acl_rules::table);
        rules.extend(found.map(|rule| {
            let remark = std::mem::take(remark);
            if rule.remark.is_empty() { AclRule { remark, ..rule } } else { rule }
        }));
        return;
    }
    let Some(text) = item.string(what) else { return };
    match parse_line(&text.value) {
        Ok(AclLine::Rule(_, rule)) => rules.push(AclRule { remark: std::mem::take(remark), ..*rule }),
        Ok(AclLine::Remark(text)) => *remark = text,
        Ok(AclLine::Nothing) => text.problem(item.source, format!("found an empty rule: expected {what}")),
        Err(e) => text.problem(item.source, format!("character {}: {e}", e.column)),
    }
}

fn from_file(file: &At<String>, source: &Source<'_>, open: Open<'_>, rules: &mut Vec<AclRule>) {
    let text = match open(Path::new(&file.value)).and_then(read_text) {
        Ok(text) => text,
        Err(e) => {
            return file.problem(source, format!("cannot read the rules in \"{}\": {e}", file.value));
        }
    };
    match parse_rules(&text) {
        Ok(found) => rules.extend(found),
        Err(errors) => {
            let more = errors.len().saturating_sub(MAX_ERRORS);
            for (line, e) in errors.into_iter().take(MAX_ERRORS) {
                source.foreign(Problem {
                    file: file.value.clone(),
                    line: Some(line),
                    column: Some(e.column as u64),
                    key: String::new(),
                    message: e.message,
                });
            }
            if more > 0 {
                file.problem(source, format!("{more} more lines of \"{}\" are wrong", file.value));
            }
        }
    }
}

fn read_text(file: Box<dyn Read>) -> io::Result<String> {
    let mut text = String::new();
    file.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io::Error::other(format!("it is over {} MiB", MAX_FILE >> 20)));
    }
    Ok(text)
}

/// Checks that the lists which interfaces name are there.
pub(super) fn bind(interfaces: &[Interface], acls: &[AclSpec], source: &Source<'_>) {
    for list in interfaces.iter().flat_map(Interface::lists) {
        if !acls.iter().any(|acl| acl.name == list.value) {
            list.problem(source, no_such("acl", &list.value, acls.iter().map(|a| a.name.as_str())));
        }
    }
}
