# Toolchain for 64-bit ARM on Debian of another processor: its cross compiler, the libraries that
# tools/install_packages.sh arm64 unpacks into build/cache/arm64, and QEMU, which runs the tests.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

get_filename_component(CMAKE_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../build/cache/arm64 ABSOLUTE)
if(NOT EXISTS ${CMAKE_SYSROOT}/usr/include)
  message(FATAL_ERROR "no arm64 libraries in ${CMAKE_SYSROOT}: run tools/install_packages.sh arm64")
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR}
    ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${CMAKE_SYSROOT})

# nvcc makes code of this processor's kind unless it is told of another compiler for the host. CUDA's
# headers are the same for both, and Arm64Cudart.cmake fetches its runtime.
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
set(CMAKE_CUDA_FLAGS_INIT "--target-directory=x86_64-linux -Xcompiler=--sysroot=${CMAKE_SYSROOT}")
foreach(kind EXE SHARED MODULE)  # CMake gives --sysroot to the compiler alone where that is nvcc
  set(CMAKE_${kind}_LINKER_FLAGS_INIT --sysroot=${CMAKE_SYSROOT})
endforeach()
