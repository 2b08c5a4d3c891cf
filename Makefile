# The short names of what people do with weft; CMake and Ninja do the work (CMakePresets.json).
.DEFAULT_GOAL := build
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
# The text that quickstart learns: the newest C++ standard library that g++ brought.
TEXT ?= $(lastword $(shell ls -d /usr/include/c++/[0-9]* 2>/dev/null | sort -V))
SOURCES = $(shell git ls-files '*.h' '*.cpp')

.PHONY: help dependencies build quickstart test asan tsan cuda cuda-compiles format tidy install clean

help: ## this list
	@sed -n 's/^\([a-z -]*\):.*## /\1\t/p' Makefile | expand -t 14

dependencies: ## install what is missing (Debian packages), as root or through sudo
	@tools/install-dependencies

build: dependencies ## the program, the library, the tests and the examples: build/release
	cmake --preset release
	cmake --build --preset release -j $(JOBS)

quickstart: dependencies ## train a small model on two data-parallel ranks, show its loss falling, generate from it
	cmake --preset release
	cmake --build --preset release -j $(JOBS) --target weft_app
	@tools/quickstart build/release/weft "$(TEXT)"

test: build ## every test
	ctest --preset release -j $(JOBS)

asan tsan: ## the fast tests under AddressSanitizer and UBSan, or under ThreadSanitizer
	@tools/install-dependencies --sanitizers
	cmake --preset $@
	cmake --build --preset $@ -j $(JOBS)
	tools/without-aslr ctest --preset $@ -j $(JOBS)

cuda: dependencies ## the program with the CUDA backend, where NVIDIA's toolkit is: build/cuda
	cmake --preset cuda
	cmake --build --preset cuda -j $(JOBS) --target weft_app

cuda-compiles: ## the CUDA backend alone, for all targets or for CUDA_TARGETS
	cmake --preset cuda $(if $(CUDA_TARGETS),-DCMAKE_CUDA_ARCHITECTURES=$(CUDA_TARGETS))
	cmake --build --preset cuda -j $(JOBS) --target weft_cuda

format: ## write every source file the house way
	@tools/install-dependencies --dev
	clang-format -i $(SOURCES)

tidy: ## clang-tidy's short list over the library and the program
	@tools/install-dependencies --dev
	cmake --preset tidy
	tools/tidy build/tidy $(JOBS)

install: build ## to PREFIX (/usr/local)
	cmake --install build/release --prefix $(PREFIX)

clean: ## remove what was built
	rm -rf build
