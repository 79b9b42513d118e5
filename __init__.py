"""A clone named rope_lab, imported from the folder around it: the package inside the clone."""

from pathlib import Path

__file__ = str(Path(__file__).parent / "rope_lab" / "__init__.py")
__path__ = [str(Path(__file__).parent)]

exec(compile(Path(__file__).read_bytes(), __file__, "exec"))
