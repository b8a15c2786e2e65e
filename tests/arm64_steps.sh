# Sourced by ./test --arm64: what the CPU computes on 64-bit ARM, cross-built, under QEMU. Uses step,
# must, $python and the program of build/test, whose results it must have bit for bit.
must "packages of --arm64" tools/install_packages.sh arm64
must "configure arm64" cmake --preset arm64
arm64_modules=(tensor checkpoint text model backend_reference backend_cpu quantize)
arm64_tests=("${arm64_modules[@]/#/nibble_}")
must "cross-build for arm64" cmake --build build/arm64 --target nibble "${arm64_tests[@]/%/_test}"
arm64_emulator=(qemu-aarch64 -L build/cache/arm64)
printf '#!/bin/sh\nexec %s "%s/build/arm64/src/cli/nibble" "$@"\n' \
  "qemu-aarch64 -L '$PWD/build/cache/arm64'" "$PWD" >build/arm64/nibble
chmod +x build/arm64/nibble
step "tests of what arm64 computes" ctest --test-dir build/arm64 --output-on-failure -j "$jobs" \
  --timeout 3000 -R "^($(IFS='|'; echo "${arm64_modules[*]}"))(_part[0-9]+)?\$"
# Neoverse N1 has no products of 8-bit matrices, so it begins with the kernels of dot product;
# Cortex-A53 has neither, so it has the portable kernels alone.
for processor in neoverse-n1 cortex-a53; do
  step "kernels of arm64 for $processor" "${arm64_emulator[@]}" -cpu $processor \
    build/arm64/src/backend/cpu/nibble_backend_cpu_test --gtest_filter='Isa.*'
done
step "arm64 writes and computes what x86-64 does" "$python" tests/cli/arm64_test.py \
  --nibble build/test/src/cli/nibble --arm64 build/arm64/src/cli/nibble --sysroot build/cache/arm64 \
  --model pebble/model
# The other recipes have the same kernels, and half a minute each under QEMU.
step "the bits that arm64 computes" "$python" tests/cli/bits_test.py --nibble build/arm64/nibble \
  --model pebble/model --only "pebble mixed"
# Kernels are left at syntax: hosts of both kinds have the same code for cards. No driver is there.
start_with_cuda() {
  local program=build/arm64-cuda/src/cli/nibble
  { command -v nvcc || [ -x /usr/local/cuda/bin/nvcc ]; } >/dev/null ||
    { echo "skipped: no nvcc in PATH or in /usr/local/cuda/bin"; return 0; }
  cmake --preset arm64 -B build/arm64-cuda -DNIBBLE_CUDA=ON -DNIBBLE_CUDA_ARCHITECTURES=100f-real \
    "-DCMAKE_CUDA_FLAGS_RELEASE=-O1 -fdevice-syntax-only" &&
    cmake --build build/arm64-cuda --target nibble || return 1
  "${arm64_emulator[@]}" $program run pebble/model hi --max-tokens 2 2>&1 |
    grep -e "--backend auto takes the CPU: .*driver"
}
step "the cuda backend's host code on arm64" start_with_cuda
step "relocatable install for arm64" tests/install_test.sh build/arm64 build/cache/arm64
step "the sample of quickstart on arm64" ./quickstart "$PWD/build/arm64/nibble"
