{{/* Names and labels. */}}

{{- define "bigfleet-azure.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* The release's name when it contains the chart's. 46 characters leave room for our endings. */}}
{{- define "bigfleet-azure.fullname" -}}
{{- $name := include "bigfleet-azure.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 46 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 46 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 46 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "bigfleet-azure.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "bigfleet-azure.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{- define "bigfleet-azure.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end -}}
{{- end -}}

{{- define "bigfleet-azure.selectorLabels" -}}
app.kubernetes.io/name: {{ include "bigfleet-azure.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "bigfleet-azure.labels" -}}
{{ include "bigfleet-azure.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The head of a manifest: the namespace, the labels, and the name with an ending. */}}
{{- define "bigfleet-azure.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "bigfleet-azure.fullname" $root }}{{ index . 1 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "bigfleet-azure.labels" $root | nindent 2 }}
{{- end -}}

{{/* Whether the webhook of workload identity is asked for a token: "true" or nothing. */}}
{{- define "bigfleet-azure.workloadIdentity" -}}
{{- $said := .Values.workloadIdentity.enabled -}}
{{- if or $said (and (kindIs "invalid" $said) .Values.serviceAccount.clientId) -}}true{{- end -}}
{{- end -}}

{{/* Whether machines are the simulated region's: "true" or nothing. */}}
{{- define "bigfleet-azure.simulated" -}}
{{- if eq .Values.azureBackend "fake" -}}true{{- end -}}
{{- end -}}

{{/* Secrets and ConfigMaps that are either the user's or the chart's. */}}

{{- define "bigfleet-azure.tlsSecret" -}}
{{ default (printf "%s-tls" (include "bigfleet-azure.fullname" .)) .Values.tls.secretName }}
{{- end -}}

{{- define "bigfleet-azure.stateKeySecret" -}}
{{- $key := .Values.state.key -}}
{{- if not .Values.state.enabled -}}
{{- else if $key.existingSecret -}}
{{ $key.existingSecret }}
{{- else if $key.create -}}
{{ include "bigfleet-azure.fullname" . }}-state-key
{{- end -}}
{{- end -}}

{{- define "bigfleet-azure.callbackSecret" -}}
{{ default (printf "%s-callback-keys" (include "bigfleet-azure.fullname" .)) .Values.callback.keys.existingSecret }}
{{- end -}}

{{/* Takes the root, a section with `content`, the name of the user's own object, and an ending. */}}
{{- define "bigfleet-azure.source" -}}
{{- $root := index . 0 -}}
{{- if index . 2 -}}
{{ index . 2 }}
{{- else if (index . 1).content -}}
{{ include "bigfleet-azure.fullname" $root }}{{ index . 3 }}
{{- end -}}
{{- end -}}

{{- define "bigfleet-azure.offerings" -}}
{{ include "bigfleet-azure.source" (list . .Values.offerings .Values.offerings.existingConfigMap "-offerings") }}
{{- end -}}

{{- define "bigfleet-azure.prices" -}}
{{- if not (include "bigfleet-azure.simulated" .) -}}
{{ include "bigfleet-azure.source" (list . .Values.prices .Values.prices.existingConfigMap "-prices") }}
{{- end -}}
{{- end -}}

{{- define "bigfleet-azure.userData" -}}
{{- if not (include "bigfleet-azure.simulated" .) -}}
{{ include "bigfleet-azure.source" (list . .Values.baseUserData .Values.baseUserData.existingSecret "-base-user-data") }}
{{- end -}}
{{- end -}}

{{- define "bigfleet-azure.evictionSecret" -}}
{{- if .Values.evictionTokenSecret.existingSecret -}}
{{ .Values.evictionTokenSecret.existingSecret }}
{{- else if .Values.evictionToken -}}
{{ include "bigfleet-azure.fullname" . }}-eviction-token
{{- end -}}
{{- end -}}

{{/* Whether there are small public files for Azure: "true" or nothing. */}}
{{- define "bigfleet-azure.files" -}}
{{- if and (not (include "bigfleet-azure.simulated" .)) (or .Values.azure.sshPublicKey .Values.azure.armCa) -}}true{{- end -}}
{{- end -}}

{{- define "bigfleet-azure.kubeconfigs" -}}
{{- if not (include "bigfleet-azure.simulated" .) -}}
{{ .Values.kubeconfigs.existingSecret }}
{{- end -}}
{{- end -}}
