# The headers of CUTLASS (BSD-3-Clause), from the package that NVIDIA publishes on PyPI: no Debian package
# has them. Fetched once into build/cache, pinned by its hash; -DNIBBLE_CUTLASS_DIR=FOLDER takes unpacked
# ones. Included where code for compute capability 10 is compiled, and nowhere else.
set(cutlass_name nvidia_cutlass-4.2.0.0)
set(cutlass_url
    https://files.pythonhosted.org/packages/21/6b/e86fc2fd536dd4b8bd2209aa31d7002610c501b0802337787eac9c9b328c/${cutlass_name}-py3-none-any.whl)
set(cutlass_sha256 f9599ada45c7bcb6bf53f7d3f0a7d154183e53451c01bfa59eecd37dd4a693f6)
set(NIBBLE_CUTLASS_DIR ${PROJECT_SOURCE_DIR}/build/cache/${cutlass_name} CACHE PATH
    "the unpacked package of CUTLASS; fetched if it is not there")
set(cutlass_include ${NIBBLE_CUTLASS_DIR}/cutlass_library/source/include)

if(NOT EXISTS ${cutlass_include}/cutlass/version.h)
  include(${PROJECT_SOURCE_DIR}/cmake/Fetch.cmake)
  nibble_fetch(NIBBLE_CUTLASS_DIR ${cutlass_name} ${cutlass_url} ${cutlass_sha256}
    ${PROJECT_SOURCE_DIR}/build/cache/${cutlass_name}.whl ${NIBBLE_CUTLASS_DIR}
    PATTERNS "cutlass_library/source/include/*" "*.dist-info/licenses/*")
endif()
