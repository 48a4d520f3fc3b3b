/* texture.c - arrays, and texture and surface objects over them or over memory.
 *
 * An array is device memory that stores its rows one after another; CUDA leaves the layout open. References (texrefs),
 * mipmaps, views of resources, sRGB and compressed formats are refused by name.
 */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

struct CUarray_st {
    CUdeviceptr address;
    CUDA_ARRAY3D_DESCRIPTOR form;
    size_t pitch;
};

typedef struct texel_form {
    emu_texel texel;
    unsigned bytes;
} texel_form;

/* False with a sentence for a format that has no rule here. */
static bool find_texel(CUarray_format format, unsigned channels, texel_form *found) {
    static const struct {
        CUarray_format format;
        texel_form of;
    } forms[] = {{CU_AD_FORMAT_UNSIGNED_INT8, {EMU_TEXEL_U8, 1}},   {CU_AD_FORMAT_UNSIGNED_INT16, {EMU_TEXEL_U16, 2}},
                 {CU_AD_FORMAT_UNSIGNED_INT32, {EMU_TEXEL_U32, 4}}, {CU_AD_FORMAT_SIGNED_INT8, {EMU_TEXEL_S8, 1}},
                 {CU_AD_FORMAT_SIGNED_INT16, {EMU_TEXEL_S16, 2}},   {CU_AD_FORMAT_SIGNED_INT32, {EMU_TEXEL_S32, 4}},
                 {CU_AD_FORMAT_HALF, {EMU_TEXEL_F16, 2}},           {CU_AD_FORMAT_FLOAT, {EMU_TEXEL_F32, 4}}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (forms[i].format != format || (channels != 1 && channels != 2 && channels != 4)) continue;
        *found = forms[i].of;
        found->bytes *= channels;
        return true;
    }
    driver_say("texels of format 0x%x with %u channels are not supported", (unsigned)format, channels);
    return false;
}

/* ---- arrays ---- */

static size_t rows_of(const CUDA_ARRAY3D_DESCRIPTOR *form) {
    return (form->Height ? form->Height : 1) * (form->Depth ? form->Depth : 1);
}

static CUresult create_array(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *form) {
    const unsigned known = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP;
    texel_form texel;
    if (!array || !form || !form->Width) return CUDA_ERROR_INVALID_VALUE;
    if (form->Flags & ~known) {
        driver_say("an array with flags 0x%x is not supported", form->Flags);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const bool cube = form->Flags & CUDA_ARRAY3D_CUBEMAP, layers = form->Flags & CUDA_ARRAY3D_LAYERED;
    if (cube && (layers || form->Depth != 6 || form->Width != form->Height)) {
        driver_say("a cube has six faces, square ones, and no layers here: %zu x %zu x %zu", form->Width, form->Height,
                   form->Depth);
        return layers ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    }
    if ((layers && !form->Depth) || (!layers && form->Depth && !form->Height)) return CUDA_ERROR_INVALID_VALUE;
    if (form->Width > 1 << 17 || form->Height > 1 << 16 || form->Depth > 1 << 14) return CUDA_ERROR_INVALID_VALUE;
    if (!find_texel(form->Format, form->NumChannels, &texel)) return CUDA_ERROR_NOT_SUPPORTED;
    CUarray made = malloc(sizeof *made);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    *made = (struct CUarray_st){.form = *form, .pitch = form->Width * texel.bytes};
    const CUresult status = allocate_memory(&made->address, made->pitch * rows_of(form));
    if (status == CUDA_SUCCESS)
        *array = made;
    else
        free(made);
    return status;
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *form) {
    const CUresult status = driver_enter();
    return driver_leave(status == CUDA_SUCCESS ? create_array(array, form) : status);
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *form) {
    if (!form) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_ARRAY3D_DESCRIPTOR whole = {
        .Width = form->Width, .Height = form->Height, .Format = form->Format, .NumChannels = form->NumChannels};
    return cuArray3DCreate(array, &whole);
}

CUresult cuArrayDestroy(CUarray array) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) status = array ? release_memory(array->address) : CUDA_ERROR_INVALID_HANDLE;
    if (status == CUDA_SUCCESS) free(array);
    return driver_leave(status);
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR *form, CUarray array) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(form && array)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) *form = array->form;
    return driver_leave(status);
}

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR *form, CUarray array) {
    CUDA_ARRAY3D_DESCRIPTOR whole;
    const CUresult status = form ? cuArray3DGetDescriptor(&whole, array) : CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS)
        *form = (CUDA_ARRAY_DESCRIPTOR){whole.Width, whole.Height, whole.Format, whole.NumChannels};
    return status;
}

bool array_memory(CUarray array, uint64_t *address, size_t *pitch, size_t *rows) {
    if (!array) return false;
    *address = array->address;
    *pitch = array->pitch;
    *rows = array->form.Height ? array->form.Height : 1;
    return true;
}

/* ---- objects ---- */

static CUresult over_array(const struct CUarray_st *array, emu_texture_info *info) {
    const CUDA_ARRAY3D_DESCRIPTOR *form = &array->form;
    texel_form texel;
    if (!find_texel(form->Format, form->NumChannels, &texel)) return CUDA_ERROR_NOT_SUPPORTED;
    const bool cube = form->Flags & CUDA_ARRAY3D_CUBEMAP, layers = cube || form->Flags & CUDA_ARRAY3D_LAYERED;
    *info = (emu_texture_info){.address = array->address,
                               .pitch = array->pitch,
                               .sizes = {(uint32_t)form->Width, (uint32_t)form->Height, 0},
                               .channels = form->NumChannels,
                               .texel = texel.texel,
                               .cube = cube};
    if (layers)
        info->layers = (uint32_t)form->Depth;
    else
        info->sizes[2] = (uint32_t)form->Depth;
    return CUDA_SUCCESS;
}

static CUresult over_memory(const CUDA_RESOURCE_DESC *resource, emu_texture_info *info) {
    const bool linear = resource->resType == CU_RESOURCE_TYPE_LINEAR;
    const CUarray_format format = linear ? resource->res.linear.format : resource->res.pitch2D.format;
    const unsigned channels = linear ? resource->res.linear.numChannels : resource->res.pitch2D.numChannels;
    const CUdeviceptr address = linear ? resource->res.linear.devPtr : resource->res.pitch2D.devPtr;
    texel_form texel;
    if (!find_texel(format, channels, &texel)) return CUDA_ERROR_NOT_SUPPORTED;
    *info = (emu_texture_info){.address = address, .channels = channels, .texel = texel.texel, .linear = linear};
    size_t bytes = resource->res.linear.sizeInBytes;
    if (linear) {
        info->sizes[0] = (uint32_t)(bytes / texel.bytes);
    } else {
        info->pitch = resource->res.pitch2D.pitchInBytes;
        info->sizes[0] = (uint32_t)resource->res.pitch2D.width;
        info->sizes[1] = (uint32_t)resource->res.pitch2D.height;
        bytes = info->sizes[1] ? info->pitch * (info->sizes[1] - 1) + (size_t)info->sizes[0] * texel.bytes : 0;
        if (info->pitch < (size_t)info->sizes[0] * texel.bytes || info->pitch % 32) return CUDA_ERROR_INVALID_VALUE;
    }
    /* CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT: 512 */
    return bytes && address % 512 == 0 && device_bytes(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult refuse(const char *what) {
    driver_say("a texture with %s is not supported", what);
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult over(const CUDA_RESOURCE_DESC *resource, emu_texture_info *info) {
    switch (resource->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        return resource->res.array.hArray ? over_array(resource->res.array.hArray, info) : CUDA_ERROR_INVALID_HANDLE;
    case CU_RESOURCE_TYPE_LINEAR:
    case CU_RESOURCE_TYPE_PITCH2D:
        return over_memory(resource, info);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        return refuse("mipmaps");
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult read_description(const CUDA_TEXTURE_DESC *wanted, emu_texture_info *info) {
    static const emu_texture_edge edges[] = {[CU_TR_ADDRESS_MODE_WRAP] = EMU_EDGE_WRAP,
                                             [CU_TR_ADDRESS_MODE_CLAMP] = EMU_EDGE_CLAMP,
                                             [CU_TR_ADDRESS_MODE_MIRROR] = EMU_EDGE_MIRROR,
                                             [CU_TR_ADDRESS_MODE_BORDER] = EMU_EDGE_BORDER};
    for (int i = 0; i < 3; i++) {
        if ((unsigned)wanted->addressMode[i] >= sizeof edges / sizeof *edges) return CUDA_ERROR_INVALID_VALUE;
        info->edge[i] = edges[wanted->addressMode[i]];
    }
    memcpy(info->border, wanted->borderColor, sizeof info->border);
    info->as_integer = wanted->flags & CU_TRSF_READ_AS_INTEGER;
    info->normalized = wanted->flags & CU_TRSF_NORMALIZED_COORDINATES;
    info->filtered = wanted->filterMode == CU_TR_FILTER_MODE_LINEAR && !info->linear;
    if (wanted->flags & CU_TRSF_SRGB) return refuse("sRGB");
    if (wanted->flags & CU_TRSF_SEAMLESS_CUBEMAP && info->filtered) return refuse("filters over the edges of a cube");
    if (wanted->maxAnisotropy > 1) return refuse("anisotropy");
    const bool integers = info->texel == EMU_TEXEL_U32 || info->texel == EMU_TEXEL_S32 ||
                          (info->as_integer && info->texel < EMU_TEXEL_F16);
    return info->filtered && integers ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult make_object(unsigned long long *object, const emu_texture_info *info) {
    *object = emu_make_texture(the_driver()->device, info);
    record_refused("a texture or surface object");
    return *object ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuTexObjectCreate(CUtexObject *object, const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *wanted,
                           const CUDA_RESOURCE_VIEW_DESC *view) {
    emu_texture_info info;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(object && resource && wanted)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && view) status = refuse("a view of its resource");
    if (status == CUDA_SUCCESS) status = over(resource, &info);
    if (status == CUDA_SUCCESS) status = read_description(wanted, &info);
    if (status == CUDA_SUCCESS) status = make_object(object, &info);
    return driver_leave(status);
}

CUresult cuSurfObjectCreate(CUsurfObject *object, const CUDA_RESOURCE_DESC *resource) {
    emu_texture_info info;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(object && resource)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && resource->resType != CU_RESOURCE_TYPE_ARRAY) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = over(resource, &info);
    if (status == CUDA_SUCCESS && !(resource->res.array.hArray->form.Flags & CUDA_ARRAY3D_SURFACE_LDST)) {
        driver_say("a surface needs an array that was created with CUDA_ARRAY3D_SURFACE_LDST");
        status = CUDA_ERROR_INVALID_VALUE;
    }
    info.surface = true;
    if (status == CUDA_SUCCESS) status = make_object(object, &info);
    return driver_leave(status);
}

static CUresult destroy(unsigned long long object, bool surface) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) {
        const emu_texture_info *info = emu_find_texture(the_driver()->device, object);
        status = info && info->surface == surface ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (status == CUDA_SUCCESS) emu_free_texture(the_driver()->device, object);
    return driver_leave(status);
}

CUresult cuTexObjectDestroy(CUtexObject object) {
    return destroy(object, false);
}

CUresult cuSurfObjectDestroy(CUsurfObject object) {
    return destroy(object, true);
}
