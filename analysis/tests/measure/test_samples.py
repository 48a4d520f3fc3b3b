"""ncu's samples by instruction."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import AnalysisError
from analysis.measure.samples import Sampled, SampledKernel, parse_samples

HEAD = '"Address","Source","# Samples","Other","Instructions Executed"\n'
TEXT = (
    '==PROF== Disconnected\n"Kernel Name","f(int)",\n'
    + HEAD
    + '"0x7e00","      LDC R1, c[0x0][0x28]","78","-","65,536"\n'
    '"0x7e10","@!P0 IMAD.MOV.U32 R2, RZ, RZ, R1","4","-","32"\n'
)


def test_instructions_count_from_the_first() -> None:
    first = (Sampled(0, "LDC", 78, 65536), Sampled(16, "IMAD.MOV.U32", 4, 32))
    assert parse_samples(TEXT, "f") == [SampledKernel("f(int)", first)]
    second = '"Kernel Name","g()",\n' + HEAD + '"0x100","EXIT","0","-","1"\n'
    assert parse_samples(TEXT + second, "f")[1:] == [SampledKernel("g()", (Sampled(0, "EXIT", 0, 1),))]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"# Samples"', '"Samples"', "f:3: no column '# Samples'; expected what `ncu --import"),
        ('"78"', '"many"', "f:4: not understood: '0x7e00,"),
        ('"0x7e10"', '"7e10"', "f:5: not understood"),
        ('"0x7e10"', '"0x7df0"', "f:5: address 0x7df0 is before the kernel's first, 0x7e00"),
        ("@!P0 IMAD", "???", "f:5: not understood"),
        (TEXT, '"ID","Metric Name"\n', "f: holds no instruction with samples"),
    ],
)
def test_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(AnalysisError) as error:
        parse_samples(TEXT.replace(old, new), "f")
    assert message in str(error.value)


@given(
    st.lists(st.sampled_from([*TEXT.splitlines(keepends=True), '"', ",", "0x10\n", "\0", "x" * 200_000])).map("".join)
)
def test_any_text_is_samples_or_refused(text: str) -> None:
    try:
        assert parse_samples(text, "f")
    except AnalysisError as error:
        assert str(error).startswith("f:")
