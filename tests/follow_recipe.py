"""Follows docs/recipes/add-a-score.md: score.cpp with the page's class and row in it.

follow_recipe.py <page> <score.cpp> <result>
"""
import pathlib, re, sys, textwrap

page, source, result = map(pathlib.Path, sys.argv[1:])
blocks = [textwrap.dedent(b) for b in re.findall(r"```cpp\n(.*?)```", page.read_text(), re.S)]
[klass] = [b for b in blocks if "class Distance" in b]
[row] = [b for b in blocks if "row<Distance>" in b]
text = source.read_text()


def put_before(text, where, what):
    assert text.count(where) == 1, f"{source}: wants one {where!r}"
    return text.replace(where, what + where)


text = put_before(text, "template <class S>\nconstexpr ScoreRow row(", klass + "\n")
table = text.index("constexpr ScoreRow kScores[]")
end = text.index("};", table)
result.write_text(text[:end] + row + text[end:])
