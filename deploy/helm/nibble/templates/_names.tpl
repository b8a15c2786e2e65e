{{- define "nibble.name" -}}
{{- if contains "nibble" .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-nibble" .Release.Name | trunc 63 | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{- define "nibble.selector" -}}
app.kubernetes.io/name: nibble
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "nibble.labels" -}}
{{ include "nibble.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}
