# The short face of the build. Presets are in CMakePresets.json; each builds into build/<preset>.
.PHONY: all install demo test bench cuda mpi mpi-cuda arm64 fuzz python python-tests format lint clean deps

# The presets compile the same files, mostly in the same way: what one has compiled the others take
# from ccache, wherever they build it.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

# The program and the library; tests and examples are built by who wants them.
all: deps
	@cmake --preset release >build/configure.log || (cat build/configure.log; false)
	@cmake --build --preset release --target heed heed_inference heed_studies heed_program

# What was built: the program, the library and find_package(heed), in /usr/local or PREFIX.
install:
	@cmake --install build/release $(if $(PREFIX),--prefix $(PREFIX)) >build/installed.log || \
	 (cat build/installed.log; false)

# Installs what is missing; does nothing, and needs no network, when nothing is.
deps:
	@mkdir -p build
	@tools/install-deps

# Trains a translator on a small grammar, translates what it has never seen, and shows what it attends to.
demo: all
	@cmake --build --preset release --target grammar
	@tools/demo

# What CI runs: everything, as users get it and under the address and undefined sanitizers; what many
# threads share also under the thread sanitizer; what the shared libraries show; several ranks.
test: all
	@cmake --build --preset release
	@ctest --preset release
	@cmake --preset dev >build/configure.log || (cat build/configure.log; false)
	@cmake --build --preset dev
	@ctest --preset dev
	@cmake --preset thread >build/configure.log || (cat build/configure.log; false)
	@cmake --build --preset thread
	@ctest --preset thread
	@cmake --preset shared >build/configure.log || (cat build/configure.log; false)
	@cmake --build --preset shared
	@ctest --preset shared
	@$(MAKE) --no-print-directory mpi
	@ctest --preset mpi
	@$(MAKE) --no-print-directory python-if-possible
	@$(MAKE) --no-print-directory cuda-if-possible

# The Python package, into build/python, made of the same library, and its tests. PYTHON=... names
# another interpreter.
python: deps
	@tools/install-deps python
	@$(MAKE) --no-print-directory python-tests

python-tests:
	@python=$$(tools/find-python) && \
	 cmake --preset release -DHEED_PYTHON=ON -DPython_EXECUTABLE=$$python >build/configure.log || \
	 (cat build/configure.log; false)
	@cmake --build --preset release --target heed_python heed_program
	@HEED_PROGRAM=$(CURDIR)/build/release/heed $$(tools/find-python) python/tests/run.py build/python

python-if-possible:
	@if tools/find-python >/dev/null; then $(MAKE) --no-print-directory python-tests; \
	 else echo "python: the package was not tested"; fi

bench: deps
	@tools/install-deps bench
	@cmake --preset bench >build/configure.log || (cat build/configure.log; false)
	@cmake --build --preset bench
	@build/bench/heed bench --json build/bench.json

cuda: deps
	@cmake --preset cuda >build/configure.log || (cat build/configure.log; false)
	@cmake --build --preset cuda --target heed_program

# For several machines: `mpirun -n 8 build/mpi/heed train ...` (docs/scale.md).
mpi:
	@mkdir -p build
	@tools/install-deps mpi
	@cmake --preset mpi >build/configure.log || (cat build/configure.log; false)
	@cmake --build --preset mpi

# The same for machines with GPUs; wants nvcc, as `make cuda` does.
mpi-cuda: deps
	@tools/install-deps mpi
	@cmake --preset mpi-cuda >build/configure.log || (cat build/configure.log; false)
	@cmake --build --preset mpi-cuda

# For arm64, and its tests by an emulator (docs/hardware.md), which is slow: not part of `make test`.
arm64: deps
	@tools/arm64-root
	@cmake --preset arm64 >build/configure.log || (cat build/configure.log; false)
	@cmake --build --preset arm64
	@ctest --preset arm64

cuda-if-possible:
	@if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then $(MAKE) --no-print-directory cuda; \
	 else echo "cuda: no nvcc on this machine, not compiled"; fi

# A minute for every reader of files, with whatever bytes make it go somewhere new.
fuzz: deps
	@tools/install-deps fuzz
	@cmake --preset fuzz >build/configure.log || (cat build/configure.log; false)
	@cmake --build --preset fuzz
	@tools/fuzz

format:
	@git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format -i

lint:
	@git ls-files 'heed/*.cpp' 'apps/*.cpp' | xargs clang-tidy -p build/release --quiet

clean:
	@rm -rf build
