# The CUDA runtime for 64-bit ARM, from the package that NVIDIA publishes on PyPI: the toolkit of another
# processor has it for that one alone. Fetched once into build/cache, pinned by its hash;
# -DNIBBLE_ARM64_CUDART_DIR=FOLDER takes an unpacked one. Included by cross builds with NIBBLE_CUDA.
set(cudart_name nvidia_cuda_runtime-13.0.96)
set(cudart_url
    https://files.pythonhosted.org/packages/87/4f/17d7b9b8e285199c58ce28e31b5c5bbaa4d8271af06a89b6405258245de2/${cudart_name}-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64.whl)
set(cudart_sha256 ef9bcbe90493a2b9d810e43d249adb3d02e98dd30200d86607d8d02687c43f55)
set(NIBBLE_ARM64_CUDART_DIR ${PROJECT_SOURCE_DIR}/build/cache/${cudart_name} CACHE PATH
    "the unpacked package of the CUDA runtime for 64-bit ARM; fetched if it is not there")
set(cudart_libraries ${NIBBLE_ARM64_CUDART_DIR}/nvidia/cu13/lib)

if(NOT EXISTS ${cudart_libraries}/libcudart_static.a)
  include(${PROJECT_SOURCE_DIR}/cmake/Fetch.cmake)
  nibble_fetch(NIBBLE_ARM64_CUDART_DIR ${cudart_name} ${cudart_url} ${cudart_sha256}
    ${PROJECT_SOURCE_DIR}/build/cache/${cudart_name}.whl ${NIBBLE_ARM64_CUDART_DIR}
    PATTERNS "nvidia/cu13/lib/*")
endif()

# The linker and CMake look for them among the libraries of the sysroot.
set(places ${CMAKE_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
foreach(library libcudart_static.a libcudadevrt.a)
  file(CREATE_LINK ${cudart_libraries}/${library} ${places}/${library} SYMBOLIC)
endforeach()
file(CREATE_LINK ${cudart_libraries}/libcudart.so.13 ${places}/libcudart.so SYMBOLIC)
