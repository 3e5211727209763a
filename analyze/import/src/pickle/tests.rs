//! Reads valid, broken and hostile pickles.

use super::*;
use analyze_run::random::Random;

/// A consumer that collects the elements and condenses nothing.
#[derive(Default)]
struct Collect {
    elements: Vec<(usize, String)>,
}

impl Consumer for Collect {
    fn element(
        &mut self,
        index: usize,
        element: Value,
        store: &mut Store,
        _near: u64,
    ) -> Result<(), PickleError> {
        self.elements.push((index, show(store, element)));
        if let Value::Object(id) = element {
            let values = store.take(id);
            store.finish(id, values, None);
        }
        Ok(())
    }

    fn condense(&mut self, value: Value, _store: &mut Store) -> Result<Value, PickleError> {
        Ok(value)
    }
}

const KNOWN: [&str; 2] = ["traces", "frames"];
const KEYS: Keys = Keys { streamed: TextId(0), condensed: TextId(1) };

fn show(store: &Store, value: Value) -> String {
    match value {
        Value::None => "None".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Unsigned(value) => value.to_string(),
        Value::Huge => "huge".to_owned(),
        Value::Float(value) => format!("{value:?}"),
        Value::Text(text) => format!("{:?}", store.word(text)),
        Value::Bytes => "bytes".to_owned(),
        Value::Token(_) => "token".to_owned(),
        Value::Object(_) => [Shape::List, Shape::Tuple, Shape::Dict, Shape::Set]
            .into_iter()
            .find_map(|shape| {
                let (_, values) = store.values(value, shape, "", 0).ok()?;
                let parts: Vec<String> = values.iter().map(|value| show(store, *value)).collect();
                Some(format!("{shape:?}[{}]", parts.join(" ")))
            })
            .unwrap_or_else(|| "gone".to_owned()),
    }
}

fn machine(bytes: &[u8]) -> Machine<'_> {
    Machine::new(Source::new(bytes, Some(bytes.len() as u64)), &KNOWN, KEYS)
}

fn outcome(machine: Machine<'_>, collect: &mut Collect) -> Result<String, String> {
    match machine.run(collect) {
        Ok((root, store, _)) => Ok(show(&store, root)),
        Err(PickleError::At { offset, reason }) => Err(format!("{offset}: {reason}")),
        Err(other) => panic!("{other:?}"),
    }
}

fn read(bytes: &[u8]) -> Result<String, String> {
    outcome(machine(bytes), &mut Collect::default())
}

#[track_caller]
fn good(bytes: &[u8], expected: &str) {
    assert_eq!(read(bytes).as_deref(), Ok(expected));
}

#[track_caller]
fn bad(bytes: &[u8], offset: u64, words: &str) {
    let message = read(bytes).expect_err("it must be refused");
    assert!(message.starts_with(&format!("{offset}: ")) && message.contains(words), "{message}");
}

#[test]
fn every_kind_of_data() {
    good(b"N.", "None");
    good(b"\x80\x02\x88.", "true");
    good(b"I00\n.", "false");
    good(b"I01\n.", "true");
    good(b"I-7\n.", "-7");
    good(b"L12345678901L\n.", "12345678901");
    good(b"F1.5\n.", "1.5");
    good(b"G\x3f\xf8\0\0\0\0\0\0.", "1.5");
    good(b"K\xff.", "255");
    good(b"M\xff\xff.", "65535");
    good(b"J\xff\xff\xff\xff.", "-1");
    good(b"\x8a\x05\0\0\0\0\x01.", "4294967296");
    good(b"\x8b\x09\0\0\0\0\0\0\0\0\0\0\x80\0.", "9223372036854775808");
    good(b"\x8a\x0a\0\0\0\0\0\0\0\0\0\x01.", "huge");
    good(b"Va\\u00fcb\\U0001f600c\xfc\n.", "\"aüb😀cü\"");
    good(b"S'a\\n\\x41\"'\n.", "\"a\\nA\\\"\"");
    good(b"T\x02\0\0\0ab.", "\"ab\"");
    good(b"U\x02ab.", "\"ab\"");
    good(b"X\x02\0\0\0\xc3\xbc.", "\"ü\"");
    good(b"\x8c\x01a.", "\"a\"");
    good(b"\x8d\x01\0\0\0\0\0\0\0a.", "\"a\"");
    good(b"\x8c\x03\xed\xa0\x80.", "\"\u{fffd}\u{fffd}\u{fffd}\"");
    good(b"B\x02\0\0\0ab.", "bytes");
    good(b"C\x02ab.", "bytes");
    good(b"\x8e\x02\0\0\0\0\0\0\0ab.", "bytes");
    good(b"\x96\x02\0\0\0\0\0\0\0ab.", "bytes");
    good(b").", "Tuple[]");
    good(b"K\x01\x85.", "Tuple[1]");
    good(b"K\x01K\x02\x86.", "Tuple[1 2]");
    good(b"K\x01K\x02K\x03\x87.", "Tuple[1 2 3]");
    good(b"(K\x01K\x02t.", "Tuple[1 2]");
    good(b"(K\x01K\x02l.", "List[1 2]");
    good(b"(K\x01K\x02d.", "Dict[1 2]");
    good(b"](K\x01K\x02eK\x03a.", "List[1 2 3]");
    good(b"}(K\x01K\x02uK\x03K\x04s.", "Dict[1 2 3 4]");
    good(b"\x8f(K\x01K\x02\x90.", "Set[1 2]");
    good(b"(K\x01\x91.", "Set[1]");
}

#[test]
fn the_memo_and_the_stack() {
    good(b"\x8c\x01aq\x050]h\x05a.", "List[\"a\"]");
    good(b"\x8c\x01ar\x05\0\x01\x000]j\x05\0\x01\0a.", "List[\"a\"]");
    good(b"\x8c\x01ap12\n0]g12\na.", "List[\"a\"]");
    good(b"]\x94(\x8c\x01a\x94h\x01h\x01e.", "List[\"a\" \"a\" \"a\"]");
    good(b"]q\x000](h\x00h\x00e.", "List[List[] List[]]");
    good(b"K\x07q\x000](h\x00h\x00e.", "List[7 7]");
    good(b"K\x07q\x00q\x010]h\x01a.", "List[7]");
    good(b"K\x01N0.", "1");
    good(b"K\x01(NN1.", "1");
    good(b"K\x01(0.", "1");
    good(b"K\x012\x86.", "Tuple[1 1]");
}

#[test]
fn code_is_refused_by_name_and_not_run() {
    bad(b"\x80\x04cos\nsystem\n\x8c\x02ls\x85R.", 2, "GLOBAL os.system");
    bad(b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93\x8c\x02ls\x85R.", 16, "STACK_GLOBAL os.system");
    bad(b"NNR.", 2, "REDUCE");
    bad(b"NNb.", 2, "BUILD");
    bad(b"(ios\nsystem\n.", 1, "INST");
    bad(b"(No.", 2, "OBJ");
    bad(b"NN\x81.", 2, "NEWOBJ");
    bad(b"NNN\x92.", 3, "NEWOBJ_EX");
    bad(b"\x82\x01.", 0, "EXT1");
    bad(b"\x83\x01\0.", 0, "EXT2");
    bad(b"\x84\x01\0\0\0.", 0, "EXT4");
    bad(b"P1\n.", 0, "PERSID");
    bad(b"NQ.", 1, "BINPERSID");
    bad(b"\x97.", 0, "NEXT_BUFFER");
    bad(b"N\x98.", 1, "READONLY_BUFFER");
    // The name must not reach the terminal as control characters.
    let message = read(b"c\x1b[2J\nx\n.").expect_err("it must be refused");
    assert!(!message.contains('\x1b'), "{message}");
}

#[test]
fn broken_programs_are_refused() {
    bad(b"", 0, "cut off");
    bad(b"\x80\x06N.", 0, "protocol 6");
    bad(b"hello, I am no pickle", 0, "has not put there");
    bad(b"\x1f\x8bN.", 0, "no opcode");
    bad(b".", 0, "empty stack");
    bad(b"0.", 0, "empty stack");
    bad(b"(.", 1, "empty stack");
    bad(b"N(0.N", 5 - 1, "more bytes");
    bad(b"NN.", 2, "belong nowhere");
    bad(b"N(a.", 2, "needs an object");
    bad(b"NNa.", 2, "None, not to a list");
    bad(b"e.", 0, "mark");
    bad(b"(NNe.", 3, "none is there");
    bad(b"}(Nu.", 3, "no value");
    bad(b"}]Ns.", 3, "key of a dict is a list");
    bad(b"](N\x86.", 3, "more objects than there are");
    bad(b"h\x00.", 0, "has not put there");
    bad(b"j\xff\xff\xff\xff.", 0, "has not put there");
    bad(b"gx\n.", 0, "no number");
    bad(b"g-1\n.", 0, "no number");
    bad(b"Np99999999999\n.", 1, "no number");
    bad(b"I1x\n.", 0, "malformed");
    bad(b"S'x\n.", 0, "malformed");
    bad(b"V\\u00g0\n.", 0, "malformed");
    bad(b"\x8b\xff\xff\xff\xff.", 0, "negative");
}

#[test]
fn lengths_that_lie_allocate_nothing() {
    for (opcode, width) in
        [(b'X', 4), (b'T', 4), (0x8d, 8), (b'B', 4), (0x8e, 8), (0x96, 8), (0x95, 8), (0x8b, 4)]
    {
        for claim in [u64::MAX, i64::MAX as u64, 0x7fff_ffff, 1 << 24] {
            let mut bytes = vec![opcode];
            bytes.extend_from_slice(&claim.to_le_bytes()[..width]);
            bytes.extend_from_slice(b"short.");
            let message = read(&bytes).expect_err("it must be refused");
            assert!(message.len() < 200, "{message}");
            // The bytes are read again from a stream whose length is not known.
            let source = Source::new(&bytes[..], None);
            let unknown =
                outcome(Machine::new(source, &KNOWN, KEYS).with_limit(1 << 30), &mut Collect::default());
            // A stream can be read without its frames.
            assert!(unknown.is_err() || opcode == 0x95, "{opcode:x} {claim}");
        }
    }
}

#[test]
fn what_contains_itself_is_refused() {
    bad(b"]\x94h\x00a.", 0, "contains itself");
    bad(b"}\x94K\x01h\x00s.", 0, "contains itself");
    bad(b"N0]\x94(]\x94h\x00ah\x01e.", 2, "contains itself");
    good(b"]\x940](h\x00h\x00]h\x00ae.", "List[List[] List[] List[List[]]]");
}

#[test]
fn depth_and_width_meet_a_limit() {
    let deep = [vec![b']'; 400_000], vec![b'a'; 399_999], vec![b'.']].concat();
    let count = machine(&deep).run(&mut Collect::default()).map(|_| ());
    assert!(count.is_ok(), "depth costs no stack: {count:?}");
    for hungry in [&b"]"[..], b"(", b"N", b"K\x00\x94", b"}", b"\x8f", b")", b"N2"] {
        let bytes = hungry.repeat(2 << 20);
        let message =
            outcome(machine(&bytes).with_limit(8 << 20), &mut Collect::default()).expect_err("too much");
        assert!(message.contains("MiB of memory"), "{message}");
    }
    let distinct: Vec<u8> = (0..300_000_u32)
        .flat_map(|n| [&b"\x8c\x06"[..], format!("{n:06}").as_bytes(), b"0"].concat())
        .collect();
    let message =
        outcome(machine(&distinct).with_limit(8 << 20), &mut Collect::default()).expect_err("too much");
    assert!(message.contains("MiB of memory"), "{message}");
    // These are indices of a memo with gaps.
    let gaps: Vec<u8> =
        (0..300_000_u32).flat_map(|n| [&b"r"[..], &(n * 9999).to_le_bytes()].concat()).collect();
    let gaps = [b"N".to_vec(), gaps].concat();
    let message = outcome(machine(&gaps).with_limit(4 << 20), &mut Collect::default()).expect_err("too much");
    assert!(message.contains("MiB of memory"), "{message}");
}

#[test]
fn elements_are_handed_out_wherever_the_list_stands() {
    let element = |n: u8| [&b"}\x94K\x01K"[..], &[n], b"s"].concat();
    let expect = |bytes: &[u8], elements: &[(usize, &str)], root: &str| {
        let mut collect = Collect::default();
        let (value, store, streamed) = machine(bytes).run(&mut collect).unwrap();
        let found: Vec<_> = collect.elements.iter().map(|(at, text)| (*at, text.as_str())).collect();
        assert_eq!((found.as_slice(), show(&store, value).as_str()), (elements, root));
        assert!(!streamed.is_empty());
    };
    let (a, b, c) = (element(1), element(2), element(3));
    // There is one key, one list, and one element at a time.
    let single = [&b"}\x8c\x06traces]]"[..], &a, b"a", &b, b"aas."].concat();
    expect(&single, &[(0, "Dict[1 1]"), (0, "Dict[1 2]")], "Dict[\"traces\" List[List[]]]");
    // The key follows another key, and there are two lists and batches of elements.
    let batches = [&b"}(K\x01K\x02\x8c\x06traces](]]("[..], &a, &b, b"e(", &c, b"eeK\x03K\x04u."].concat();
    expect(
        &batches,
        &[(1, "Dict[1 1]"), (1, "Dict[1 2]"), (1, "Dict[1 3]")],
        "Dict[1 2 \"traces\" List[List[] List[]] 3 4]",
    );
    // The lists come one by one.
    let one_by_one = [&b"}\x8c\x06traces](]"[..], &a, b"ae(]", &b, b"ae]", &c, b"aas."].concat();
    expect(
        &one_by_one,
        &[(0, "Dict[1 1]"), (1, "Dict[1 2]"), (2, "Dict[1 3]")],
        "Dict[\"traces\" List[List[] List[] List[]]]",
    );
    // The streamed key has no special meaning in an inner dict.
    let inner = [&b"}\x8c\x01x}\x8c\x06traces]]"[..], &a, b"aass."].concat();
    let mut collect = Collect::default();
    let text = outcome(machine(&inner), &mut collect);
    assert_eq!(text.as_deref(), Ok("Dict[\"x\" Dict[\"traces\" List[List[Dict[1 1]]]]]"));
    assert!(collect.elements.is_empty());
}

#[test]
fn a_second_reference_to_what_is_gone_is_refused() {
    // The element was memoized as 0 and streamed.
    bad(b"}\x8c\x06traces]]}\x94K\x01K\x02saash\x00.", 21, "a second time");
    // It was referred to before, so its shell stays.
    bad(b"}\x8c\x06traces](](}\x94h\x00e]h\x00aes.", 19, "a second time");
}

#[test]
fn random_bytes_never_panic() {
    let opcodes =
        b"(.012FGIJKLMNSTUVX]a})edghjlpqrstu\x80\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8f\x90\x91\x94\x95";
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut whole = 0;
    for _ in 0..60_000 {
        let bytes: Vec<u8> = (0..random.below(60))
            .map(|_| match random.below(4) {
                0 => random.below(256) as u8,
                1 => b"\0\x01\x02\n1"[random.below(5)],
                _ => opcodes[random.below(opcodes.len())],
            })
            .collect();
        whole += usize::from(machine(&bytes).with_limit(1 << 26).run(&mut Collect::default()).is_ok());
    }
    assert!(whole > 0, "some are pickles");
}
