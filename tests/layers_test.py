"""Which folder may include which: a file includes its own folder and those below it."""
import pathlib, re, sys

BELOW = {
    "base": "", "kernels": "base", "tensor": "base kernels", "ops": "base kernels tensor",
    "nn": "base kernels tensor ops", "attention": "base kernels tensor ops nn",
    "models": "base files kernels tensor ops nn attention",
    "search": "base kernels tensor ops nn attention models",
    "translation": "base alignment data files text kernels tensor ops nn attention models search",
    "exchange": "base data files kernels tensor ops nn attention models search translation",
    "language": "base data files kernels tensor ops nn attention models search translation",
    "ranks": "base kernels tensor",
    "training": "base alignment data files kernels ranks tensor ops nn attention models search "
                "translation metrics",
    "studies": "base data files kernels tensor ops nn attention models search training translation "
               "language metrics view",
    "serve": "base data files text kernels tensor ops nn attention models search translation language view",
    "files": "base", "text": "base", "alignment": "base files", "data": "base files", "metrics": "base", "view": "base files",
}
root = pathlib.Path(__file__).parent.parent / "heed"
bad = []
for path in sorted(root.rglob("*.*")):
    folder = path.relative_to(root).parts[0]
    if path.suffix not in (".h", ".cpp", ".cu", ".cuh") or folder not in BELOW: continue
    for other in re.findall(r'#include "heed/(\w+)/', path.read_text()):
        if other != folder and other not in BELOW[folder].split():
            bad.append(f"{path.relative_to(root.parent)}: may not include heed/{other}")
unknown = [p.name for p in root.iterdir() if p.is_dir() and p.name not in BELOW]
bad += [f"heed/{name}: a folder that tests/layers_test.py does not know" for name in unknown]
print("\n".join(bad) or "all includes point downwards")
sys.exit(bool(bad))
